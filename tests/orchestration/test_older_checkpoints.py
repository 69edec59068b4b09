"""Checkpoints that were written before some part of the state existed can still be played, resumed and verified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ludus.experiment import build_player
from ludus.types import Spaces, restore
from support import build, close, config

QUICK = {"batch_size": 8, "learning_starts": 32, "epoch_steps": 64, "update_ratio": 0.25}
CASES = {
    "dqn": ("CartPole-v1", QUICK, "epsilon"),
    "td3": ("Pendulum-v1", QUICK, "sigma"),
    "q_learning": ("FrozenLake-v1", {}, "epsilon"),
}


def older(state: dict[str, Any], new: str) -> dict[str, Any]:
    """As commit 092e6e4 wrote it."""
    assert new in state["algorithm"]
    algorithm = {name: part for name, part in state["algorithm"].items() if name != new}
    kept = {name: part for name, part in state.items() if name != "nan_guard"}
    return {**kept, "algorithm": algorithm, "compiler": {"used": False}}


@pytest.mark.parametrize("name", CASES)
def test_an_older_run_goes_on_and_can_be_played(name: str) -> None:
    env, settings, new = CASES[name]
    cfg = config({"name": name, **settings}, env, environment={"num_envs": 2}, training={"total_timesteps": 256})
    run = build(cfg)
    run.run()
    state = older(run.state_dict(), new)
    longer = cfg.model_copy(update={"training": cfg.training.model_copy(update={"total_timesteps": 512})})
    again = build(longer)
    again.load_state_dict(state)
    again.run()
    assert again.clock.env_steps == 512 and again.clock.updates > run.clock.updates
    vector = run.algorithm.collector.env
    player = build_player(cfg, Spaces(vector.observation_space, vector.action_space), state)
    obs, first = np.stack([vector.observation_space.sample()]), np.ones(1, bool)
    both = (run.algorithm, player.algorithm)
    mine, theirs = (one.act(obs, one.initial_state(1), first, deterministic=True).action for one in both)
    np.testing.assert_array_equal(mine, theirs)
    close(run)
    close(again)


def test_compiled_stays_compiled_and_eager_stays_eager() -> None:
    run = build(config({"name": "ppo"}, runtime={"compile": "always"}))
    compiler: Any = run.stateful["compiler"]
    compiler.sizes = sizes = frozenset({128})
    compiler.load_state_dict({"used": True})
    assert compiler.sizes == sizes
    compiler.load_state_dict({"used": False})
    assert not compiler.sizes and "began" in compiler.describe()
    close(run)


def test_a_part_that_was_always_there_must_be_there() -> None:
    with pytest.raises(KeyError):
        restore({"weights": torch.nn.Linear(1, 1)}, {})
