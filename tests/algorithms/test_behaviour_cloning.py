"""Behaviour cloning learns the actions of a data set, with every kind of action and network, and says how well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from demonstrations import CART, PENDULUM, demonstrations
from ludus.algorithms.behaviour_cloning import BehaviourCloningConfig
from ludus.config.schema import ExperimentConfig
from ludus.errors import ConfigError
from ludus.types import Spaces
from support import build, close, moment, run

pytest.importorskip("minari")

BITS = Spaces(gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.MultiBinary(2))
DICT = Spaces(
    gym.spaces.Dict(look=gym.spaces.Box(0, 255, (1, 8, 8), np.uint8), feel=gym.spaces.Box(-1, 1, (2,))),
    gym.spaces.Discrete(2),
)


OFFLINE = {"name": "one", "type": "offline", "duration_updates": 4, "hooks": ["update_controller"]}


SQUARES = {**OFFLINE, "name": "two", "set": {"loss": "squared_error"}}


class Rows(list):
    """A sink that keeps every row."""

    def write(self, row: Any) -> None:
        self.append(dict(row))

    def close(self) -> None:
        """Nothing to close."""


def config(folder: Path, updates: int = 60, **sections: Any) -> ExperimentConfig:
    algorithm = {"name": "behaviour_cloning", "batch_size": 32, "lr": 1e-2, **sections.pop("algorithm", {})}
    buffers = {"demos": {"path": str(folder), **sections.pop("demos", {})}}
    training = {"total_updates": updates, "epoch_updates": updates // 2}
    data = {"algorithm": algorithm, "buffers": buffers, "training": training, "runtime": {"compile": "never"}}
    return ExperimentConfig.model_validate({**data, **sections})


@pytest.mark.parametrize(
    ("spaces", "settings", "network"),
    [
        (CART, {}, {}),
        (PENDULUM, {}, {}),
        (PENDULUM, {"loss": "squared_error"}, {}),
        (BITS, {}, {}),
        (DICT, {}, {"encoder": "small"}),
        (CART, {"batch_size": 4, "sequence_length": 6, "burn_in": 2}, {"memory": {"type": "gru", "hidden_dim": 8}}),
        (
            PENDULUM,
            {"batch_size": 4, "sequence_length": 6, "burn_in": 0},
            {"memory": {"type": "lstm", "hidden_dim": 8}},
        ),
    ],
    ids=["discrete", "box", "squares", "bits", "pictures", "gru", "lstm"],
)
def test_the_loss_falls_on_steps_that_are_learned_from_and_on_others(
    tmp_path: Path, spaces: Spaces, settings: dict[str, Any], network: dict[str, Any]
) -> None:
    """Where actions follow from observations at all: elsewhere only the former falls."""
    folder, _ = demonstrations(tmp_path / "demos-v0", spaces)
    rows = Rows()
    run(config(folder, algorithm=settings, network=network), sinks=[rows])
    assert rows[-1]["train/loss/total"] < rows[0]["train/loss/total"]
    if spaces in (CART, PENDULUM):
        assert rows[-1]["train/loss/validation"] < rows[0]["train/loss/validation"]


def test_the_loss_is_the_likelihood_of_the_actions(tmp_path: Path) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0")
    built = build(config(folder))
    algorithm, cfg = built.algorithm, built.config.algorithm.config
    batch = algorithm.draw(built.buffers["demos"], cfg, 16)
    loss, _ = algorithm.loss(algorithm.policy, batch, floor=None, squared=False, burn_in=0)
    params = algorithm.policy(batch["obs"], (), batch["first"])[0]
    expected = torch.distributions.Categorical(logits=params).log_prob(batch["action"]).mean()
    assert torch.allclose(loss, -expected)
    close(built)


def test_deviations_stop_at_their_floor_and_means_go_on(tmp_path: Path) -> None:
    """Of an expert without noise the likelihood has no largest value."""
    folder, _ = demonstrations(tmp_path / "demos-v0", PENDULUM)
    done = run(config(folder, updates=200, algorithm={"min_std": 0.3, "lr": 0.02}))
    std = float(done.algorithm.policy.actor.log_std.detach().exp())
    assert 0.2 < std < 0.32
    plain = run(config(folder, updates=20, algorithm={"loss": "squared_error"}))
    assert float(plain.algorithm.policy.actor.log_std.detach()) == 0.0, "PPO explores from there"


def test_sequences_begin_with_an_empty_memory_and_rows_without_a_step_weigh_nothing(tmp_path: Path) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0", steps=4)
    memory = {"memory": {"type": "gru", "hidden_dim": 8}}
    built = build(config(folder, algorithm={"sequence_length": 8, "burn_in": 3}, network=memory))
    algorithm, cfg = built.algorithm, built.config.algorithm.config
    batch = algorithm.draw(built.buffers["demos"], cfg, 16)
    assert batch["obs"].shape[:2] == batch["first"].shape == (11, 16)
    assert batch["action"].shape == batch["weight"].shape == (8, 16)
    assert not any(leaf.any() for leaf in batch["state"]) and (batch["weight"] == 0).any()
    assert torch.isclose(batch["weight"].mean(), torch.ones(()))
    static = {"floor": None, "squared": False, "burn_in": 3}
    one, _ = algorithm.loss(algorithm.policy, batch, **static)
    wrong = torch.where(batch["weight"] == 0, 1 - batch["action"], batch["action"])
    other, _ = algorithm.loss(algorithm.policy, {**batch, "action": wrong}, **static)
    assert torch.equal(one, other)
    close(built)


def test_the_validation_loss_is_taken_over_the_same_steps_every_time(tmp_path: Path) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0")
    one, other = (build(config(folder, experiment={"seed": seed})) for seed in (1, 2))
    for built in (one, other):
        built.algorithm.update_controller(moment(built.config.algorithm.config))
    assert torch.equal(one.algorithm.validation["obs"], other.algorithm.validation["obs"])
    before = one.algorithm.metrics()["loss/validation"]
    assert one.algorithm.metrics()["loss/validation"] == before
    learned = {row.numpy().tobytes() for row in one.algorithm.draw(one.buffers["demos"], one.settings, 500)["obs"][0]}
    assert learned.isdisjoint(row.numpy().tobytes() for row in one.algorithm.validation["obs"][0])
    for built in (one, other):
        close(built)


def test_without_episodes_to_validate_on_there_is_no_such_number(tmp_path: Path) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0")
    rows = Rows()
    run(config(folder, updates=4, demos={"held_out": 0.0}), sinks=[rows])
    assert "train/loss/validation" not in rows[-1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"algorithm": {"loss": "squared_error"}}, "algorithm.loss: squared_error needs continuous actions"),
        ({"training": {"total_updates": 8, "phases": [OFFLINE, SQUARES]}},
         "algorithm.loss: squared_error needs continuous actions"),
        ({"demos": {"path": ""}}, "buffers.demos.path: names no data set; write buffers.demos.path=DIR"),
        ({"network": {"memory": "gru"}, "algorithm": {"sequence_length": 999}}, "never fit into the .*; lower it"),
        ({"training": {"total_timesteps": 64}, "environment": {"id": "CartPole-v1"}},
         "training.total_updates: behaviour_cloning takes no environment steps"),
    ],
    ids=["squares of classes", "in a later phase", "no data set", "too long", "online"],
)  # fmt: skip
def test_what_cannot_work_is_refused(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0")
    with pytest.raises(ConfigError, match=expected):
        build(config(folder, **changes))


def test_a_deviation_without_end_is_refused() -> None:
    with pytest.raises(ValidationError, match="min_std"):
        BehaviourCloningConfig(min_std=float("inf"))
