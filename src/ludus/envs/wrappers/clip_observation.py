"""Observations within bounds."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.registry import WRAPPERS
from ludus.types import Array


@WRAPPERS.register("clip_observation")
@WRAPPERS.register("ClipObservation")
class ClipObservation(gym.ObservationWrapper):
    """Clips every number of an observation to [low, high]."""

    def __init__(self, env: gym.Env, low: float = -10.0, high: float = 10.0) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, Box) or space.dtype.kind != "f":
            raise ValueError(f"clips vectors of floats, the observation is {space}")
        if low >= high:
            raise ValueError(f"low must be below high, got {low} and {high}")
        self._low, self._high = low, high
        self.observation_space = Box(self.observation(space.low), self.observation(space.high), dtype=space.dtype)

    def observation(self, observation: Any) -> Array:
        return np.clip(observation, self._low, self._high)
