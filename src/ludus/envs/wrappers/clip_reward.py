"""Rewards within bounds."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.registry import WRAPPERS


@WRAPPERS.register("clip_reward")
@WRAPPERS.register("ClipReward")
class ClipReward(gym.RewardWrapper):
    """Clips the reward to [low, high]; logged returns stay raw."""

    def __init__(self, env: gym.Env, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        if low >= high:
            raise ValueError(f"low must be below high, got {low} and {high}")
        self._low, self._high = low, high

    def reward(self, reward: Any) -> float:
        return min(max(float(reward), self._low), self._high)
