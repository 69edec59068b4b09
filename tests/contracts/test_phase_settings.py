"""What a phase may set, a hook reads: a setting that only the start of a run reads is fixed for the whole run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demonstrations import CART, PENDULUM, demonstrations
from ludus.registry import ALGORITHMS
from support import build, close, config, moment

SMALL = {"learning_starts": 8, "batch_size": 3}
WORLD = {
    **SMALL,
    "sequence_length": 4,
    "size": "tiny",
    "representation": {"deter": 8, "hidden": 8, "stoch": 2},
    "horizon": 2,
}
SEEN = {"vision": {"depth": 2}, "memory": {"units": 4}, "controller": {"population": 4}, "rollout_steps": 8}
WRAPPERS = {"world_models": [{"id": "draw_cart_pole", "size": 12}]}
CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "a2c": ({}, "CartPole-v1", {}),
    "dqn": (
        {**SMALL, "sequence_length": 4, "burn_in": 1, "target_every": 1},
        "CartPole-v1",
        {"memory": {"type": "gru", "hidden_dim": 4}},
    ),
    "behaviour_cloning": ({"batch_size": 3}, "Pendulum-v1", {}),
    "diffusion_policy": ({"batch_size": 3, "denoiser": {"widths": (8,)}}, "Pendulum-v1", {}),
    "dreamer": (WORLD, "CartPole-v1", {}),
    "iql": (SMALL, "CartPole-v1", {}),
    "planet": ({**WORLD, "candidates": 4, "elites": 2, "rounds": 1}, "Pendulum-v1", {}),
    "ppo": ({"rollout_steps": 8}, "CartPole-v1", {}),
    "ppo_replay": ({"rollout_steps": 8}, "CartPole-v1", {}),
    "q_learning": ({}, "CliffWalking-v1", {}),
    "random": ({}, "CartPole-v1", {}),
    "reinforce": ({}, "CartPole-v1", {}),
    "sac": (SMALL, "Pendulum-v1", {}),
    "td3": (SMALL, "Pendulum-v1", {}),
    "tdmpc": ({**SMALL, "size": "tiny", "planning_horizon": 2.0}, "Pendulum-v1", {}),
    "world_models": ({**SEEN, "sequence_length": 4}, "CartPole-v1", {}),
}

ONLINE = {"iql": {"train_freq"}}
"""Read by `collect`, which needs a phase with a buffer of its own."""


def watched(cfg: Any, read: set[str]) -> Any:
    """An equal config that notes which of its fields are read."""

    def note(self: Any, name: str) -> Any:
        read.add(name)
        return super(kind, self).__getattribute__(name)

    kind = type("Watched", (type(cfg),), {"__getattribute__": note})
    return kind.model_construct(**{name: getattr(cfg, name) for name in type(cfg).model_fields})


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_hooks_read_every_setting_that_a_phase_may_change(name: str, tmp_path: Path) -> None:
    settings, env, network = CASES[name]
    environment = {"num_envs": 2, "wrappers": WRAPPERS.get(name, [])}
    sections: dict[str, Any] = {"environment": environment, "network": network}
    if "demos" in ALGORITHMS[name].buffers:
        folder, _ = demonstrations(tmp_path / "demos-v0", PENDULUM if env == "Pendulum-v1" else CART)
        sections |= {"buffers": {"demos": {"path": str(folder)}}, "training": {"total_updates": 12}}
    one = build(config({"name": name, **settings}, env=env, **sections))
    cfg, read = one.config.algorithm.config, set[str]()
    now = replace(moment(cfg), cfg=watched(cfg, read))
    for _ in range(12):
        for label, hook in one.algorithm.hooks().items():
            if label != "collect" or one.collector is not None:
                hook(now)
    close(one)
    assert set(type(cfg).model_fields) - cfg.fixed - ONLINE.get(name, set()) <= read
    assert cfg.fixed <= set(type(cfg).model_fields)
