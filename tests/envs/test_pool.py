"""EnvPool under the contract; its CartPole is in test_contract.py."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from envs.conftest import Make
from envs.test_contract import assert_same, play

pytest.importorskip("envpool")


@pytest.mark.parametrize("id", ["Acrobot-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_episodes_end_and_begin_in_the_same_step(make: Make, id: str) -> None:
    env = make(id, vectorization="envpool", num_envs=3, max_episode_steps=9)
    single = make(id, num_envs=1)
    assert env.observation_space == single.observation_space and env.action_space == single.action_space
    assert env.max_episode_steps == 9
    seen = play(env, 40)
    assert seen["obs"].dtype == env.observation_space.dtype and seen["reward"].dtype == np.float32
    done = seen["terminated"] | seen["truncated"]
    assert done.any(axis=0).all() and seen["truncated"].any()
    assert_same(seen, play(env, 40))
    if id == "Pendulum-v1":
        angle = np.arctan2(seen["final_obs"][..., 1], seen["final_obs"][..., 0])[done]
        before = np.arctan2(seen["obs"][:-1][..., 1], seen["obs"][:-1][..., 0])[done]
        turn = np.angle(np.exp(1j * (angle - before)))
        np.testing.assert_allclose(
            turn, 0.05 * seen["final_obs"][..., 2][done], atol=1e-4
        )  # no jump into a new episode


def test_dynamics_of_pendulum_are_gymnasiums(make: Make) -> None:
    """From the same state and action; to float32 rounding of the observation the state is taken from."""
    env = make("Pendulum-v1", vectorization="envpool", num_envs=2)
    obs = env.reset([1, 2]).copy()
    result = env.step(np.full((2, 1), 1.5, np.float32))
    single = gym.make("Pendulum-v1").unwrapped
    for i in range(2):
        single.reset(seed=0)
        single.state = np.array([np.arctan2(obs[i, 1], obs[i, 0]), obs[i, 2]])  # type: ignore[attr-defined]
        expected, reward, *_ = single.step(np.array([1.5]))
        np.testing.assert_allclose(result.obs[i], expected, atol=1e-5)
        assert result.reward[i] == pytest.approx(reward, abs=1e-4)


def test_bounds_that_are_none_are_repaired(make: Make) -> None:
    pytest.importorskip("Box2D")
    env = make("LunarLander-v3", vectorization="envpool", num_envs=2)
    assert np.isinf(env.observation_space.low).all()  # type: ignore[attr-defined]
    assert all(env.observation_space.contains(row) for row in env.reset([0, 1]))
