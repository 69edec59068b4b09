"""Any action a policy likes, clipped to what the environment takes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.registry import WRAPPERS


@WRAPPERS.register("clip_action")
@WRAPPERS.register("ClipAction")
class ClipAction(gym.ActionWrapper):
    """Shows an unbounded action space and clips to the environment's own (bounded spaces are clipped anyway)."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, Box):
            raise ValueError(f"clips Box actions, this one takes {space}")
        self._low, self._high = space.low, space.high
        self.action_space = Box(-np.inf, np.inf, space.shape, space.dtype)

    def action(self, action: Any) -> Any:
        return np.clip(action, self._low, self._high)
