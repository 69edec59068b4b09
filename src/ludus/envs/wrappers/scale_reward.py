"""Rewards times a constant."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.registry import WRAPPERS


@WRAPPERS.register("scale_reward")
@WRAPPERS.register("ScaleReward")
class ScaleReward(gym.RewardWrapper):
    """Multiplies the reward; logged returns stay raw."""

    def __init__(self, env: gym.Env, scale: float) -> None:
        super().__init__(env)
        if scale == 0:
            raise ValueError("a scale of 0 leaves no reward")
        self._scale = scale

    def reward(self, reward: Any) -> float:
        return float(reward) * self._scale
