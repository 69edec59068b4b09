"""The native CartPole against Gymnasium's single one, given the same states and actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ludus.config.schema import Environment
from ludus.envs.make import make_vector

PLACE, SPEED, ANGLE, SPIN = (st.floats(-limit, limit) for limit in (2.5, 5.0, 0.25, 5.0))


@given(st.lists(st.tuples(PLACE, SPEED, ANGLE, SPIN, st.integers(0, 1)), min_size=1, max_size=9))
def test_one_step_from_any_state_is_equal_bit_for_bit(cases: list[tuple[float, float, float, float, int]]) -> None:
    """Same operations in the same order in double precision: equal, not close."""
    env: Any = make_vector(Environment(id="CartPole-v1", num_envs=len(cases)))
    env.reset(range(len(cases)))
    states, actions = np.array([case[:4] for case in cases]), np.array([case[4] for case in cases])
    for i, state in enumerate(states):
        env._task.parts[i] = state.reshape(2, 2)
    result = env.step(actions)
    seen = (
        result.obs if result.final_obs is None else np.where(result.terminated[:, None], result.final_obs, result.obs)
    )
    single: Any = gym.make("CartPole-v1").unwrapped
    for i, state in enumerate(states):
        single.reset(seed=0)
        single.state = state
        obs, reward, terminated, *_ = single.step(int(actions[i]))
        np.testing.assert_array_equal(seen[i], obs)
        np.testing.assert_array_equal(env._task.parts[i].ravel() if not terminated else single.state, single.state)
        assert (result.reward[i], result.terminated[i]) == (reward, terminated)


def test_constants_are_gymnasiums() -> None:
    from ludus.envs.vector import cartpole

    single: Any = gym.make("CartPole-v1").unwrapped
    ours = (
        cartpole.GRAVITY,
        cartpole.MASS_CART,
        cartpole.MASS_POLE,
        cartpole.HALF_LENGTH,
        cartpole.FORCE,
        cartpole.TAU,
    )
    assert ours == (single.gravity, single.masscart, single.masspole, single.length, single.force_mag, single.tau)
    assert (single.x_threshold, single.theta_threshold_radians) == (cartpole.X_LIMIT, cartpole.ANGLE_LIMIT)
    assert single.kinematics_integrator == "euler"


def test_impossible_actions_are_not_swallowed() -> None:
    import pytest

    with make_vector(Environment(id="CartPole-v1", num_envs=2)) as env:
        env.reset([0, 1])
        with pytest.raises(IndexError):
            env.step(np.array([0, 2]))
