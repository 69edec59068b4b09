"""Tabular Q-learning against value iteration, and its one rule by hand."""

from __future__ import annotations

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

from ludus.algorithms.q_learning import Table, epsilon_greedy
from ludus.data.rollout import Ends, Rollout
from ludus.errors import ConfigError
from support import build, close, config, run


def value_iteration(env: gym.Env, gamma: float) -> np.ndarray:
    """Q* [S, A] from the transition table of a toy-text environment."""
    table = env.unwrapped.P
    q = np.zeros((len(table), len(table[0])))
    for _ in range(2_000):
        v = q.max(1)
        q = np.array(
            [
                [
                    sum(p * (r + gamma * v[s] * (not done)) for p, s, r, done in outcomes)
                    for outcomes in actions.values()
                ]
                for actions in table.values()
            ]
        )
    return q


def test_equals_value_iteration_on_the_map_without_slipping() -> None:
    cfg = config(
        {"name": "q_learning", "lr": 1.0, "gamma": 0.9, "epsilon": 1.0},
        env="FrozenLake-v1",
        environment={"kwargs": {"is_slippery": False}, "num_envs": 8},
        training={"total_timesteps": 60_000},
    )
    done = run(cfg)
    found = done.algorithm.table.q_SA
    wanted = value_iteration(gym.make("FrozenLake-v1", is_slippery=False), 0.9)
    desc = gym.make("FrozenLake-v1").unwrapped.desc.ravel()
    walkable = np.isin(desc, [b"S", b"F"])  # nothing is ever done in a hole or at the goal
    np.testing.assert_allclose(found[walkable], wanted[walkable], atol=1e-9)


def rollout(obs, action, reward, terminated, truncated, ends=None) -> Rollout:
    terminated, truncated = np.array(terminated)[:, None], np.array(truncated)[:, None]
    first = np.concatenate([np.zeros((1, 1), bool), terminated | truncated])
    return Rollout(
        obs=np.array(obs)[:, None],
        action=np.array(action)[:, None],
        reward=np.array(reward, np.float32)[:, None],
        terminated=terminated,
        truncated=truncated,
        first=first,
        state=(),
        last_state=(),
        ends=ends,
        raw_obs=np.array(obs)[:, None],
        raw_reward=np.array(reward, np.float32)[:, None],
        start=0,
    )


def test_the_rule() -> None:
    table = Table(4, 2, 0.0)
    table.q_SA[1] = (3.0, 5.0)
    error = table.learn(rollout([0, 1], [1], [1.0], [False], [False]), 0.5, 0.9)
    assert table.q_SA[0].tolist() == [0.0, 0.5 * (1 + 0.9 * 5)]
    assert error == pytest.approx(5.5)


def test_an_end_is_worth_nothing_and_a_time_limit_its_true_final_state() -> None:
    table = Table(4, 1, 0.0)
    table.q_SA[:, 0] = (0.0, 10.0, 20.0, 0.0)
    table.learn(rollout([0, 2], [0], [1.0], [True], [False]), 1.0, 0.5)
    assert table.q_SA[0, 0] == 1.0
    last, one = np.array([1]), np.array([0])
    finals = Ends(t=one, b=one, obs=last, raw_obs=last, state=(), bootstrap=np.array([True]))
    table.learn(rollout([0, 2], [0], [1.0], [False], [True], finals), 1.0, 0.5)
    assert table.q_SA[0, 0] == 1.0 + 0.5 * 10.0


def test_later_steps_of_a_rollout_see_what_earlier_ones_learned() -> None:
    table = Table(3, 1, 0.0)
    table.learn(rollout([0, 0, 0], [0, 0], [1.0, 1.0], [False] * 2, [False] * 2), 1.0, 0.5)
    assert table.q_SA[0, 0] == 1.0 + 0.5 * 1.0


def test_epsilon_greedy_draws_ties_and_random_actions() -> None:
    rng = np.random.default_rng(0)
    values = np.tile([1.0, 2.0, 2.0], (30_000, 1))
    assert np.bincount(epsilon_greedy(values, 0.0, rng), minlength=3) / 30_000 == pytest.approx([0, 0.5, 0.5], abs=0.02)
    assert np.bincount(epsilon_greedy(values, 0.3, rng), minlength=3) / 30_000 == pytest.approx(
        [0.1, 0.45, 0.45], abs=0.02
    )


def test_optimism_tries_everything() -> None:
    """With a value no return can reach and no random actions, every action of the start is still tried."""
    cfg = config(
        {"name": "q_learning", "lr": 1.0, "epsilon": 0.0, "initial_value": 1.0},
        env="FrozenLake-v1",
        environment={"kwargs": {"is_slippery": False}},
        training={"total_timesteps": 8_000},
    )
    assert run(cfg).evaluator.evaluate(0).mean == 1.0


def test_observations_stay_integers() -> None:
    one = build(config("q_learning", env="FrozenLake-v1"))
    assert one.algorithm.collector.env.observation_space == gym.spaces.Discrete(16)
    assert one.algorithm.table.q_SA.shape == (16, 4)
    close(one)


def test_other_spaces_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs Discrete observations"):
        build(config("q_learning", env="CartPole-v1"))


def test_a_lost_step_teaches_nothing() -> None:
    """The second of three steps was lost with its worker; it reads truncated, reward 0."""
    steps = rollout([0, 1, 2, 3], [0, 0, 0], [1.0, 0.0, 4.0], [False] * 3, [False, True, False])
    table, lost = Table(4, 1, 8.0), dataclasses.replace(steps, broken=np.array([[False], [True], [False]]))
    error = table.learn(lost, 1.0, 0.5)
    assert table.q_SA[:, 0].tolist() == [1 + 0.5 * 8, 8.0, 4 + 0.5 * 8, 8.0]
    assert error == pytest.approx((3 + 0) / 3), "of the steps there were"
