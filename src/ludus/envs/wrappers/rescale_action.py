"""Actions in one range for the policy, in another for the environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.registry import WRAPPERS


@WRAPPERS.register("rescale_action")
@WRAPPERS.register("RescaleAction")
class RescaleAction(gym.ActionWrapper):
    """The policy acts in [low, high], mapped linearly onto the environment's finite bounds."""

    def __init__(self, env: gym.Env, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, Box) or not space.is_bounded():
            raise ValueError(f"needs a bounded Box of actions, this one takes {space}")
        if low >= high:
            raise ValueError(f"low must be below high, got {low} and {high}")
        self._low, self._scale = low, (space.high - space.low) / (high - low)
        self._space = space
        self.action_space = Box(low, high, space.shape, space.dtype)

    def action(self, action: Any) -> Any:
        scaled = self._space.low + (action - self._low) * self._scale
        return np.clip(scaled, self._space.low, self._space.high).astype(self._space.dtype)  # rounding may overshoot
