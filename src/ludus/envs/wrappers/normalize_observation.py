"""Observations by a known mean and deviation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.registry import WRAPPERS
from ludus.types import Array

Numbers = float | list[float]


@WRAPPERS.register("normalize_observation")
class NormalizeObservation(gym.ObservationWrapper):
    """(observation - mean) / std of a vector, as float32; `environment.normalize_obs: rolling` finds them itself."""

    def __init__(self, env: gym.Env, mean: Numbers, std: Numbers) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise ValueError(f"normalizes vectors, the observation is {space}")
        self._mean, self._std = (_vector(name, value, space.shape[0]) for name, value in (("mean", mean), ("std", std)))
        if not (self._std > 0).all():
            raise ValueError(f"std must be positive, got {std}")
        self.observation_space = Box(self.observation(space.low), self.observation(space.high), dtype=np.float32)

    def observation(self, observation: Any) -> Array:
        return ((np.asarray(observation, float) - self._mean) / self._std).astype(np.float32)


def _vector(name: str, value: Numbers, size: int) -> Array:
    vector = np.array(value, float)
    if vector.shape not in ((), (size,)) or not np.isfinite(vector).all():
        raise ValueError(f"{name} must be a finite number or {size} of them, got {value}")
    return np.broadcast_to(vector, (size,)).copy()
