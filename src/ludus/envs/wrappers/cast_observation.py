"""Observations in the dtype their space promises."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.registry import WRAPPERS


@WRAPPERS.register("cast_observation")
@WRAPPERS.register("CastObservation")
class CastObservation(gym.ObservationWrapper):
    """For environments that return float64 (or lists) in a float32 space: casting is asked for, never silent."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        if not isinstance(env.observation_space, Box):
            raise ValueError(f"casts Box observations, this one is {env.observation_space}")

    def observation(self, observation: Any) -> np.ndarray:
        return np.asarray(observation, self.observation_space.dtype)
