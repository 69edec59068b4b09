"""`act` of every algorithm draws from the evaluation stream only: evaluating and playing disturb no training."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from ludus.registry import ALGORITHMS
from support import build, close, config, moment

REPLAY = {"learning_starts": 16, "batch_size": 4, "sequence_length": 4, "burn_in": 1}
NOISY = {"dueling": True, "noisy": True, "atoms": 5}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("CartPole-v1", {}),
    "q_learning": ("FrozenLake-v1", {"epsilon": 0.5}),
    "reinforce": ("CartPole-v1", {"rollout_steps": 16}),
    "ppo": ("CartPole-v1", {"rollout_steps": 16}),
    "ppo box": ("Pendulum-v1", {"rollout_steps": 16}),
    "ppo_replay": ("CartPole-v1", {"rollout_steps": 16}),
    "dqn": ("CartPole-v1", {**REPLAY, "epsilon": 0.5}),
    "dqn noisy": ("CartPole-v1", {**REPLAY, **NOISY}),
    "sac": ("Pendulum-v1", REPLAY),
    "sac discrete": ("CartPole-v1", REPLAY),
    "td3": ("Pendulum-v1", REPLAY),
}
MEMORIES = [(case, memory) for case in CASES for memory in ("none", "gru")]
MEMORIES = [(case, memory) for case, memory in MEMORIES if memory == "none" or case not in ("random", "q_learning")]


def trained(case: str, memory: str) -> Any:
    """A run that has collected and learned a little."""
    env, settings = CASES[case]
    cfg = config(
        {"name": case.split()[0], **settings},
        env=env,
        environment={"num_envs": 2},
        **({"buffers": {"replay": {"type": "uniform", "size": 200}}} if ALGORITHMS[case.split()[0]].buffers else {}),
        network={"memory": memory, "actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}},
    )
    run = build(cfg)
    for _ in range(20):
        for hook in run.algorithm.hooks().values():
            hook(moment(cfg.algorithm.config))
    return run


def streams(run: Any) -> str:
    """Every random stream that training draws from, and the global ones, as text."""
    state = run.state_dict()
    kept = {name: state[name] for name in ("exploration", "torch", "buffers")}
    return repr([*map(plain, kept.items()), torch.get_rng_state().tolist(), np.random.get_state(), random.getstate()])


def plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: plain(inner) for name, inner in tree.items()}
    if isinstance(tree, (tuple, list)):
        return [plain(inner) for inner in tree]
    return tree.tolist() if isinstance(tree, (torch.Tensor, np.ndarray)) else tree


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("case", "memory"), MEMORIES)
def test_acting_leaves_every_stream_of_training_untouched(case: str, memory: str, deterministic: bool) -> None:
    run = trained(case, memory)
    algorithm, obs = run.algorithm, run.algorithm.collector.newest_obs
    before = streams(run)
    state, first = algorithm.initial_state(2), np.ones(2, bool)
    for _ in range(3):
        _, state, _ = algorithm.act(obs, state, first, deterministic=deterministic)
    assert streams(run) == before
    close(run)


@pytest.mark.parametrize(("case", "memory"), MEMORIES)
def test_a_deterministic_act_gives_the_same_action_again(case: str, memory: str) -> None:
    run = trained(case, memory)
    algorithm, obs = run.algorithm, run.algorithm.collector.newest_obs
    if algorithm.deterministic_evaluation:
        found = [
            algorithm.act(obs, algorithm.initial_state(2), np.ones(2, bool), deterministic=True).action
            for _ in range(3)
        ]
        assert all(np.array_equal(action, found[0]) for action in found)
    close(run)


def test_every_algorithm_is_tried() -> None:
    assert {case.split()[0] for case in CASES} == set(ALGORITHMS.names())
