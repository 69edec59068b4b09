"""Walkers are stepped without Gymnasium's Python around the physics, and nothing may come out different."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ludus.config.schema import Environment
from ludus.envs.make import make_env, make_vector
from ludus.envs.suites.walkers import quick_step

pytest.importorskip("mujoco")
IDS = ["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"]
OTHERS: list[dict[str, Any]] = [
    {},
    {"exclude_current_positions_from_observation": False},
    {"ctrl_cost_weight": 0.3, "forward_reward_weight": 2.0, "frame_skip": 3, "reset_noise_scale": 0.2},
]


@pytest.mark.parametrize("kwargs", OTHERS, ids=["default", "with_position", "other_weights"])
@pytest.mark.parametrize("id", IDS)
def test_every_number_is_gymnasiums(id: str, kwargs: dict[str, Any]) -> None:
    env = make_vector(Environment(id=id, kwargs=kwargs, max_episode_steps=60, vectorization="sync"), num_envs=2)
    peers = [gym.wrappers.TimeLimit(gym.make(id, **kwargs).unwrapped, 60) for _ in range(2)]
    seen = env.reset([3, 4])
    for i, peer in enumerate(peers):
        assert np.array_equal(seen[i], peer.reset(seed=3 + i)[0].astype(np.float32))
    rng, ended, cut = np.random.default_rng(0), 0, 0
    for _ in range(200):
        action = rng.uniform(-1.0, 1.0, (2, *env.action_space.shape)).astype(np.float32)
        got = env.step(action)
        for i, peer in enumerate(peers):
            obs, reward, terminated, truncated, _ = peer.step(action[i])
            assert (got.reward[i], got.terminated[i], got.truncated[i]) == (np.float32(reward), terminated, truncated)
            if terminated or truncated:
                assert got.final_obs is not None
                assert np.array_equal(got.final_obs[i], obs.astype(np.float32))
                obs = peer.reset()[0]
            assert np.array_equal(got.obs[i], obs.astype(np.float32))
            ended, cut = ended + terminated, cut + truncated
    assert ended if id != "HalfCheetah-v5" else cut


@pytest.mark.parametrize("kwargs", [{"healthy_reward": 0.5}, {"terminate_when_unhealthy": False}])
@pytest.mark.parametrize("id", ["Hopper-v5", "Walker2d-v5"])
def test_falling_is_told_and_paid_alike(id: str, kwargs: dict[str, Any]) -> None:
    env, peer = make_env(Environment(id=id, kwargs=kwargs)), gym.make(id, **kwargs)
    step = quick_step(env)
    assert step is not None
    env.reset(seed=1), peer.reset(seed=1)
    for _ in range(100):
        action = np.full(env.action_space.shape, -1.0, np.float32)
        _, reward, ended, _, _ = step(action)
        _, wanted, fell, _, _ = peer.step(action)
        assert (reward, ended) == (wanted, fell)
        if fell:
            break
    else:
        assert not kwargs.get("terminate_when_unhealthy", True)


def test_others_step_as_they_are() -> None:
    class Mine(gym.Wrapper):
        """Anybody's."""

    assert quick_step(make_env(Environment(id="CartPole-v1"))) is None
    assert quick_step(make_env(Environment(id="Ant-v5"))) is None
    assert quick_step(Mine(gym.make("HalfCheetah-v5"))) is None
    clipped = Environment(id="HalfCheetah-v5", wrappers=[{"id": "clip_reward"}])
    assert quick_step(make_env(clipped)) is None


def test_private_attributes_of_an_untested_gymnasium_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env(Environment(id="Hopper-v5"))
    assert quick_step(env) is not None
    monkeypatch.setattr(gym, "__version__", "9.9.0")
    assert quick_step(env) is None
