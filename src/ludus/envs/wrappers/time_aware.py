"""Time as part of the observation, where the time limit is part of the task."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.registry import WRAPPERS


@WRAPPERS.register("time_aware")
@WRAPPERS.register("TimeAware")
class TimeAware(gym.Wrapper):
    """Appends the elapsed part of the episode's time, 0 to 1, to a vector observation."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        space, spec = env.observation_space, env.spec
        if not isinstance(space, Box) or len(space.shape) != 1 or space.dtype.kind != "f":
            raise ValueError(f"extends vectors of floats, the observation is {space}")
        if spec is None or spec.max_episode_steps is None:
            raise ValueError("needs a time limit: set environment.max_episode_steps")
        self._limit, self._elapsed = spec.max_episode_steps, 0
        low, high = np.append(space.low, 0.0), np.append(space.high, 1.0)
        self.observation_space = Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._elapsed = 0
        return self._with_time(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._elapsed += 1
        return self._with_time(obs), reward, terminated, truncated, info

    def _with_time(self, obs: Any) -> Any:
        return np.append(obs, self._elapsed / self._limit).astype(obs.dtype)
