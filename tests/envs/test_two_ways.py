"""TwoWays: both ways lead to the goal, the mean of them into the disc; its expert takes both."""

from __future__ import annotations

import numpy as np
import pytest

from envs.conftest import Make
from envs.test_contract import assert_same, play
from ludus.config.schema import Environment
from ludus.envs.experts import Expert
from ludus.envs.make import make_vector
from ludus.registry import EXPERTS


def walked(expert: Expert | None, episodes: int = 24) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(return, side, length) of the first episode of every row; without an expert the way straight on."""
    with make_vector(Environment(id="TwoWays-v0", num_envs=episodes)) as env:
        obs, first = env.reset(range(episodes)).copy(), np.ones(episodes, bool)
        total, side, length, over = (
            np.zeros(episodes),
            np.zeros(episodes),
            np.zeros(episodes, int),
            np.zeros(episodes, bool),
        )
        while not over.all():
            action = np.tile(np.float32([1, 0]), (episodes, 1)) if expert is None else expert.act(obs, first)
            result = env.step(action)
            obs, first = result.obs.copy(), result.terminated | result.truncated
            passed = ~over & (np.abs(obs[:, 0]) < 0.1)
            side[passed] = np.sign(obs[passed, 1])
            total += np.where(over, 0, result.reward)
            length += ~over
            over |= first
    return total, side, length


def expert(seed: int = 0) -> Expert:
    with make_vector(Environment(id="TwoWays-v0")) as env:
        return EXPERTS["two_ways"](env.action_space, np.random.default_rng(seed))


def test_the_expert_reaches_the_goal_on_either_side_equally_often() -> None:
    total, side, length = walked(expert())
    assert (total == 1).all() and (side > 0).sum() == (side < 0).sum() == 12
    assert length.max() < 20


def test_an_episode_that_begins_later_takes_the_other_side() -> None:
    one, obs = expert(), np.tile(np.float32([-0.5, 0]), (3, 1))
    first = np.array([[True] * 3, [False, True, False], [False, False, True]])
    signs = [np.sign(one.act(obs, row)[:, 1]).tolist() for row in first]
    begun = [signs[0][0], signs[0][1], signs[0][2], signs[1][1], signs[2][2]]
    assert begun == [begun[0] * (-1) ** i for i in range(5)]


def test_straight_on_is_the_disc() -> None:
    total, _, length = walked(None)
    assert (total == -1).all() and length.max() < 6


def test_steps_are_bounded_and_dawdling_is_cut() -> None:
    with make_vector(Environment(id="TwoWays-v0", num_envs=2)) as env:
        start = env.reset([1, 2]).copy()
        assert np.abs(start - [-1, 0]).max() <= 0.01 and not np.array_equal(start[0], start[1])
        moved = env.step(np.float32([[-5, 5], [0, 0]])).obs
        np.testing.assert_allclose(moved[0] - start[0], [-0.2, 0.2], atol=1e-6)
        for _ in range(38):
            assert not env.step(np.zeros((2, 2), np.float32)).done.any()
        result = env.step(np.zeros((2, 2), np.float32))
        assert result.truncated.all() and not result.terminated.any() and (result.reward == 0).all()


@pytest.mark.parametrize("fields", [{}, {"max_episode_steps": 7}])
def test_the_native_backend_is_bit_identical_to_single_environments(make: Make, fields: dict[str, int]) -> None:
    seeds = [3, 1, 4]
    one, two = (make("TwoWays-v0", vectorization=kind, num_envs=3, **fields) for kind in ("sync", "native"))
    assert_same(play(one, 200, seeds=seeds), play(two, 200, seeds=seeds))
