"""EnvPool under the contract; its CartPole is in test_contract.py."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from envs.conftest import Make
from envs.test_contract import assert_same, play
from ludus.errors import ConfigError

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


def _first_views(id: str, layouts: int) -> list[gym.Env]:
    """Gymnasium's environments in as many different rooms as there are."""
    found: dict[bytes, gym.Env] = {}
    for seed in range(20 * layouts):
        env = gym.make(id)
        env.reset(seed=seed)
        grid = env.unwrapped  # type: ignore[attr-defined]
        found.setdefault(grid.grid.encode().tobytes() + bytes([*grid.agent_pos, grid.agent_dir]), env)  # type: ignore[attr-defined]
        if len(found) == layouts:
            return list(found.values())
    raise AssertionError(f"{len(found)} of {layouts} rooms")


@pytest.mark.parametrize(("id", "layouts"), [("MiniGrid-Empty-8x8-v0", 1), ("MiniGrid-DoorKey-5x5-v0", 48)])
def test_rooms_of_minigrid_are_gymnasiums(id: str, layouts: int) -> None:
    """Rooms are drawn differently, so all there are follow the same actions: one of them must stay equal to the end."""
    pytest.importorskip("minigrid")
    envpool = pytest.importorskip("envpool")
    rng = np.random.default_rng(0)
    rooms = _first_views(id, layouts)
    solved = 0
    for seed in range(12):
        pool = envpool.make(id, env_type="gymnasium", num_envs=1, seed=[seed])
        (obs, _), end = pool.reset(), False
        alike = [copy.deepcopy(room) for room in rooms]
        alike = [room for room in alike if _view(room.unwrapped.gen_obs()) == _view(obs, 0)]  # type: ignore[attr-defined]
        while not end:
            assert alike
            action = int(rng.choice(7, p=[0.2, 0.2, 0.3, 0.1, 0.02, 0.16, 0.02]))
            obs, *told, _ = pool.step(np.array([action]))
            end, reward = bool(told[1][0] or told[2][0]), told[0][0]
            same = []
            for room in alike:
                view, *mine, _ = room.step(action)
                if (
                    _view(view) == _view(obs, 0)
                    and mine[0] == pytest.approx(reward)
                    and mine[1:] == [t[0] for t in told[1:]]
                ):
                    same.append(room)
            alike = same
        solved += reward > 0
        assert alike
        pool.close()
    assert solved > 2


def _view(obs: dict[str, Any], row: int | None = None) -> bytes:
    image, direction = (obs["image"], obs["direction"]) if row is None else (obs["image"][row], obs["direction"][row])
    return image.tobytes() + bytes([int(direction)])


@pytest.mark.parametrize("id", ["MiniGrid-DoorKey-5x5-v0", "MiniGrid-Fetch-5x5-N2-v0"])
@pytest.mark.parametrize("wrappers", [[], [{"id": "minigrid_image"}]])
def test_minigrid_is_seen_as_one_observation(make: Make, id: str, wrappers: list[dict[str, Any]]) -> None:
    pytest.importorskip("minigrid")
    env = make(id, vectorization="envpool", num_envs=3, wrappers=wrappers)
    single = make(id, num_envs=1, wrappers=wrappers)
    assert env.observation_space == single.observation_space and env.action_space == single.action_space
    seen = play(env, 300)
    assert all(env.observation_space.contains(obs) for obs in seen["obs"].reshape(-1, *env.observation_space.shape))  # type: ignore[misc]
    assert (seen["terminated"] | seen["truncated"]).any(axis=0).all()
    assert_same(seen, play(env, 300))
    if not wrappers:  # as many ones as cells have parts, one direction, and one mission where they differ
        ones = 7 * 7 * 3 + 1 + (id != "MiniGrid-DoorKey-5x5-v0")
        assert (seen["obs"].sum(-1) == ones).all()


@pytest.mark.parametrize(
    ("given", "problem"),
    [({"max_episode_steps": 20}, "would pay by it"), ({"kwargs": {"agent_view_size": 3}}, "without arguments")],
)
def test_what_minigrid_would_take_amiss_is_refused(make: Make, given: dict[str, Any], problem: str) -> None:
    pytest.importorskip("minigrid")
    with pytest.raises(ConfigError, match=problem):
        make("MiniGrid-Empty-5x5-v0", vectorization="envpool", num_envs=2, **given)
