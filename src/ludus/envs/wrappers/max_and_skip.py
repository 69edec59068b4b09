"""Frame skip for consoles that draw some things in every second frame only."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from ludus.envs.info import is_pixels
from ludus.envs.wrappers._arcade import require_single_frames
from ludus.registry import WRAPPERS


@WRAPPERS.register("max_and_skip")
@WRAPPERS.register("MaxAndSkip")
@WRAPPERS.register("MaxAndSkipEnv")
@WRAPPERS.register("MaxAndSkipObservation")
class MaxAndSkip(gym.Wrapper):
    """Repeats every action `skip` times and shows the brighter of the last two frames, pixel by pixel."""

    def __init__(self, env: gym.Env, skip: int = 4) -> None:
        super().__init__(env)
        if skip < 1:
            raise ValueError(f"skip must be at least 1, got {skip}")
        if not is_pixels(env.observation_space) or len(env.observation_space.shape or ()) < 2:
            raise ValueError(f"needs images, the observation is {env.observation_space}; frame_skip takes any")
        require_single_frames(env)
        self._skip = skip

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        frames: list[Any] = []
        for _ in range(self._skip):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            frames = [*frames[-1:], obs]
            if terminated or truncated:
                break
        return np.maximum(frames[0], frames[-1]), total, terminated, truncated, info
