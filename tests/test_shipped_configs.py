"""Every shipped config composes, builds and trains for a moment; what it says it needs is what it gets."""

from __future__ import annotations

import math

import pytest

from ludus.config.compose import find_targets, load, parse
from ludus.experiment import build
from support import close

TARGETS = [target.spec for target in find_targets()]
EXPERIMENTS = ["+experiment=cartpole_curriculum"]
WANTED = {
    "Bandit-v0": {"ppo", "reinforce"},
    "CartPole-v1": {"ppo", "reinforce", "ppo_masked", "ppo_gru_masked"},
    "Acrobot-v1": {"ppo", "reinforce"},
    "MountainCar-v0": {"ppo"},
    "Pendulum-v1": {"ppo"},
    "FrozenLake-v1": {"ppo", "reinforce"},
    "Taxi-v4": {"ppo"},
    "LunarLander-v3": {"ppo"},
}


def test_the_promised_ones_are_there() -> None:
    shipped: dict[str, set[str]] = {}
    for spec in TARGETS:
        env, _, variant = spec.partition(":")
        shipped.setdefault(env, set()).add(variant)
    for env, variants in WANTED.items():
        assert variants <= shipped.get(env, set()), env


@pytest.mark.parametrize("spec", [*TARGETS, *EXPERIMENTS])
def test_trains_and_evaluates(spec: str) -> None:
    changes = [
        "training.total_timesteps=600",
        "training.evaluation={episodes: 2, every_epochs: 1, timeout_seconds: 2}",
        "runtime.compile=never",
    ]
    if "phases" not in (load(spec).data["training"]["phases"] or {}):
        changes.append("algorithm.rollout_steps=32")
        if load(spec).config.algorithm.name == "ppo":
            changes += ["algorithm.batch_size=0.5", "algorithm.epochs=1"]
    rows = []

    class Rows:
        def write(self, row):
            rows.append(dict(row))

        def close(self):
            pass

    run = build(load(spec, changes).config, sinks=[Rows()])
    run.run()
    close(run)
    assert 0 < run.clock.env_steps <= 600
    assert run.clock.updates > 0 or run.config.algorithm.name in {"random", "reinforce"}
    values = [v for row in rows for v in row.values() if isinstance(v, float)]
    assert values and not any(math.isnan(v) for v in values)


@pytest.mark.parametrize("spec", TARGETS)
def test_a_saved_config_is_the_same_config(spec: str) -> None:
    resolved = load(spec)
    assert parse(resolved.data, "saved") == resolved.config


@pytest.mark.parametrize("spec", TARGETS)
def test_says_what_it_is(spec: str) -> None:
    config = load(spec).config
    assert config.experiment.description
    assert config.training.evaluation.every_steps or config.training.phases
