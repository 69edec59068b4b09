"""Algorithms that replay, and the tabular one: reproducible, undisturbed by evaluation, current in what they do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ludus.experiment import build_player
from ludus.registry import ALGORITHMS
from ludus.types import Spaces
from support import build, close, config, run

REPLAY = {"batch_size": 16, "learning_starts": 64, "epoch_steps": 100}
CASES = {
    "sac": ("Pendulum-v1", {**REPLAY, "sequence_length": 8, "burn_in": 2}),
    "sac discrete": ("CartPole-v1", {**REPLAY, "sequence_length": 8, "burn_in": 2}),
    "td3": ("Pendulum-v1", {**REPLAY, "sequence_length": 8, "burn_in": 2}),
    "ppo_replay": ("CartPole-v1", {"rollout_steps": 32, "epochs": 2, "batch_size": 0.5}),
    "q_learning": ("FrozenLake-v1", {"rollout_steps": 16}),
}
HEADS = {"actor": {"hidden_dims": [16]}, "critic": {"hidden_dims": [16]}}
RECURRENT = [(case, memory) for case in CASES for memory in ("none", "gru") if (case, memory) != ("q_learning", "gru")]


def settings(case: str, memory: str = "none", seed: int = 1, **training):
    env, algorithm = CASES[case]
    return config(
        {"name": case.split()[0], **algorithm},
        env=env,
        experiment={"seed": seed},
        environment={"num_envs": 2},
        network={**HEADS, "memory": memory},
        training={"total_timesteps": 240, **training},
        **({} if case == "q_learning" else {"buffers": {"replay": {"type": "uniform", "size": 500}}}),
    )


def weights(one) -> torch.Tensor:
    algorithm = one.algorithm
    return torch.as_tensor(algorithm.table.q_SA).clone() if hasattr(algorithm, "table") else algorithm.learner.theta


@pytest.mark.parametrize(("case", "memory"), RECURRENT)
def test_same_seed_same_weights_other_seed_other_ones(case: str, memory: str) -> None:
    one, again, other = (run(settings(case, memory, seed)) for seed in (1, 1, 2))
    assert torch.equal(weights(one), weights(again))
    assert one.progress.updates > 0
    if case != "q_learning":  # 240 steps do not find the goal: its table is all zeros
        assert not torch.equal(weights(one), weights(other))


@pytest.mark.parametrize(("case", "memory"), RECURRENT)
def test_evaluation_changes_nothing(case: str, memory: str) -> None:
    quiet = run(settings(case, memory))
    watched = run(settings(case, memory, evaluation={"every_epochs": 1, "episodes": 2, "deterministic": False}))
    assert watched.last is not None
    assert torch.equal(weights(quiet), weights(watched))


@pytest.mark.parametrize(("case", "memory"), RECURRENT)
def test_acting_uses_the_current_weights(case: str, memory: str) -> None:
    one = build(settings(case, memory))
    algorithm = one.algorithm
    obs = np.array(algorithm.collector.env.reset([1, 2]))

    def shown() -> np.ndarray:
        info = algorithm.act(obs, algorithm.initial_state(2), np.ones(2, bool), deterministic=True).info
        return np.array(info["value"])

    before = shown()
    if hasattr(algorithm, "table"):
        algorithm.table.q_SA += 1.0
    else:
        state = {name: part.state_dict() for name, part in algorithm.state().items()}
        for tensor in state["learner"]["model"].values():
            tensor.add_(0.05)
        for name, part in algorithm.state().items():
            part.load_state_dict(state[name])
    assert not np.array_equal(before, shown())
    close(one)


@pytest.mark.parametrize(("case", "memory"), RECURRENT)
def test_a_player_acts_like_the_run(case: str, memory: str) -> None:
    done = run(settings(case, memory))
    env = done.algorithm.collector.env
    spaces = Spaces(env.observation_space, env.action_space)
    state = {"algorithm": {name: part.state_dict() for name, part in done.algorithm.state().items()}}
    player = build_player(done.config, spaces, state)
    obs = np.stack([np.asarray(spaces.observation.sample()) for _ in range(3)])
    first = np.ones(3, bool)
    ours = done.algorithm.act(obs, done.algorithm.initial_state(3), first, deterministic=True).action
    theirs = player.algorithm.act(obs, player.algorithm.initial_state(3), first, deterministic=True).action
    np.testing.assert_array_equal(ours, theirs)


def test_every_algorithm_with_a_buffer_is_tested_here_or_has_tests_of_its_own() -> None:
    named = {name for name in ALGORITHMS.names() if ALGORITHMS[name].buffers}
    assert named - {case.split()[0] for case in CASES} <= {"dqn"}
