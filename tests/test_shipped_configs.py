"""Every shipped config composes, builds and trains for a moment; what it says it needs is what it gets."""

from __future__ import annotations

import itertools
import math

import pytest

from ludus.checks.trial import small
from ludus.config.compose import find_experiments, find_targets, load, parse
from ludus.envs.facts import shipped
from ludus.envs.suites import OURS
from ludus.experiment import build
from ludus.metrics.sinks import Sink
from ludus.registry import ALGORITHMS, MEMORY
from support import close

TARGETS = [target.spec for target in find_targets()]
LIGHT = {"classic control", "toy text", "Box2D", OURS}
"""Suites trained here; the others are trained by `ludus smoke train` in `make test-all`."""
TRAINED = [
    f"{entry.name}:{variant}"
    for entry in shipped()
    for variant in entry.variants
    if entry.suite.title in LIGHT and entry.suite.installed and not entry.name.startswith("CarRacing")
]
EXPERIMENTS = [
    spec for spec in find_experiments() if "demos" not in ALGORITHMS[load(spec).config.algorithm.name].buffers
]
"""Those that need a data set are trained by tests/session/test_data_sets.py and by tests/docs."""
OTHER_NAMES = {"+experiment=og_wm_carracing": "+experiment=world_models_carracing"}
"""Experiments that are another one by a second name: they are trained once."""
SCENARIOS = (
    "Basic", "DeadlyCorridor", "Deathmatch", "DefendTheCenter", "DefendTheLine", "E1M1", "HealthGathering", "MyWayHome",
    "PredictPosition", "TakeCover",
)  # fmt: skip
WANTED = {
    "Bandit-v0": {"ppo", "reinforce"},
    "CartPole-v1": {"ppo", "reinforce", "ppo_masked", "ppo_gru_masked"},
    "Acrobot-v1": {"ppo", "reinforce"},
    "MountainCar-v0": {"ppo"},
    "Pendulum-v1": {"ppo"},
    "FrozenLake-v1": {"ppo", "reinforce"},
    "Taxi-v4": {"ppo"},
    "LunarLander-v3": {"ppo"},
    **{
        key: {"ppo"}
        for key in ["BipedalWalker-v3", "CarRacing-v3", "HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5"]
    },
    **{key: {"ppo"} for key in ["ALE-Pong-v5", "ALE-Breakout-v5", "Retro-SuperMarioBros-Nes"]},
    **{f"VizDoom-{name}-v0": {"ppo"} for name in SCENARIOS},
    **{f"MiniGrid-{name}-v0": {"ppo"} for name in ("Empty-8x8", "DoorKey-8x8", "MemoryS11", "Unlock")},
    **{
        f"MinAtar-{name}-v1": {"ppo", "dqn"} for name in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
    },
    **{f"dmc-{name}": {"ppo"} for name in ("cartpole_swingup", "walker_walk", "reacher_easy")},
    **{f"MemoryGym-{name}-v0": {"ppo"} for name in ("MortarMayhem", "MysteryPath", "SearingSpotlights")},
}


def test_the_promised_ones_are_there() -> None:
    shipped: dict[str, set[str]] = {}
    for spec in TARGETS:
        env, _, variant = spec.partition(":")
        shipped.setdefault(env, set()).add(variant)
    for env, variants in WANTED.items():
        assert variants <= shipped.get(env, set()), env


ON_POLICY = [spec for spec in TRAINED if spec.endswith((":ppo", ":reinforce", ":ppo_replay"))]
CORES = itertools.cycle(sorted(name for name in MEMORY.names() if name != "none"))


@pytest.mark.parametrize(("spec", "core"), zip(ON_POLICY, CORES, strict=False))
def test_on_policy_with_any_memory(spec: str, core: str) -> None:
    """One override is enough, whatever the batch size of the config."""
    whole = load(spec, [f"network.memory={core}", "runtime.compile=never"]).config
    close(build(whole))
    run = build(load(spec, [*small(whole, 600), f"network.memory={core}"]).config)
    run.run()
    close(run)
    assert run.algorithm.policy.recurrent
    assert 0 < run.progress.env_steps <= 600


@pytest.mark.parametrize(("name", "experiment"), OTHER_NAMES.items())
def test_another_name_is_the_same_experiment(name: str, experiment: str) -> None:
    assert load(name).config == load(experiment).config


@pytest.mark.parametrize("spec", [*TRAINED, *(spec for spec in EXPERIMENTS if spec not in OTHER_NAMES)])
def test_trains_and_evaluates(spec: str) -> None:
    changes = small(load(spec).config, 600)
    rows = []

    class Rows(Sink):
        def write(self, row):
            rows.append(dict(row))

    run = build(load(spec, changes).config, sinks=[Rows()])
    run.run()
    close(run)
    assert 0 < run.progress.env_steps <= 600
    assert run.progress.updates > 0 or run.config.algorithm.name in {"random", "reinforce"}
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
