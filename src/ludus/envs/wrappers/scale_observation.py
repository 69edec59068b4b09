"""Observations in another range."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs.info import is_pixels
from ludus.envs.vector import VectorEnv
from ludus.envs.vector.vector_wrapper import VectorWrapper
from ludus.registry import WRAPPERS
from ludus.types import Array


@WRAPPERS.register("scale_observation")
@WRAPPERS.register("ScaleObservation")
@WRAPPERS.register("RescaleObservation")
class ScaleObservation(gym.ObservationWrapper):
    """Maps a bounded observation linearly onto [low, high], as float32. Images stay uint8: the network scales them."""

    def __init__(self, env: gym.Env, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(env)
        self._scale = _Scale(env.observation_space, low, high)
        self.observation_space = self._scale.space

    def observation(self, observation: Any) -> Array:
        return self._scale.apply(observation)

    @classmethod
    def vectorize(cls, venv: VectorEnv, low: float = 0.0, high: float = 1.0) -> VectorEnv:
        """The same for a whole vector at once."""
        return _ScaledVector(venv, _Scale(venv.observation_space, low, high))


class _Scale:
    def __init__(self, space: gym.Space, low: float, high: float) -> None:
        if not isinstance(space, Box) or not space.is_bounded() or not (space.low < space.high).all():
            raise ValueError(f"needs a Box with finite bounds, the observation is {space}")
        if is_pixels(space) and len(space.shape) > 1:
            raise ValueError("images stay uint8, the network scales them; `flatten` first makes them vectors")
        if low >= high:
            raise ValueError(f"low must be below high, got {low} and {high}")
        self._bottom, self._low, self._high = space.low.astype(float), low, high
        self._factor = (high - low) / (space.high.astype(float) - self._bottom)
        self.space = Box(low, high, space.shape, np.float32)

    def apply(self, obs: Any) -> Array:
        """[..., D] in a new array."""
        scaled = self._low + (np.asarray(obs, float) - self._bottom) * self._factor
        return np.clip(scaled, self._low, self._high).astype(np.float32)  # rounding may overshoot


class _ScaledVector(VectorWrapper):
    def __init__(self, inner: VectorEnv, scale: _Scale) -> None:
        super().__init__(inner, scale.space)
        self._scale = scale

    def convert(self, obs: Array) -> Array:
        return self._scale.apply(obs)
