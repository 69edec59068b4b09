"""An action that lasts several steps."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.envs.wrappers._arcade import require_single_frames
from ludus.registry import WRAPPERS


@WRAPPERS.register("frame_skip")
@WRAPPERS.register("FrameSkip")
@WRAPPERS.register("FrameSkipWrapper")
class FrameSkip(gym.Wrapper):
    """Repeats every action `skip` times, or until the episode ends; sums rewards, shows the last observation."""

    def __init__(self, env: gym.Env, skip: int = 4) -> None:
        super().__init__(env)
        if skip < 1:
            raise ValueError(f"skip must be at least 1, got {skip}")
        require_single_frames(env)
        self._skip = skip

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._skip):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info
