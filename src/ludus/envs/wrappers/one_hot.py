"""A discrete observation as a unit vector, for whatever works on vectors: time_aware, frame_stack."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.envs.vector import VectorEnv
from ludus.envs.vector.vector_wrapper import VectorWrapper
from ludus.registry import WRAPPERS
from ludus.types import Array


@WRAPPERS.register("one_hot")
@WRAPPERS.register("OneHot")
@WRAPPERS.register("OneHotWrapper")
class OneHot(gym.ObservationWrapper):
    """float32 with a single 1; the networks do the same with a Discrete observation by themselves."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        space = env.observation_space
        self._codes = _codes(space)
        self._start = int(space.start) if isinstance(space, Discrete) else 0
        self.observation_space = Box(0.0, 1.0, self._codes[0].shape, np.float32)

    def observation(self, observation: Any) -> Array:
        return self._codes[int(observation) - self._start].copy()

    @classmethod
    def vectorize(cls, venv: VectorEnv) -> VectorEnv:
        """The same for a whole vector at once."""
        return _OneHotVector(venv)


class _OneHotVector(VectorWrapper):
    def __init__(self, inner: VectorEnv) -> None:
        self._codes = _codes(inner.observation_space)
        super().__init__(inner, Box(0.0, 1.0, self._codes[0].shape, np.float32))

    def convert(self, obs: Array) -> Array:
        return self._codes[obs]


def _codes(space: gym.Space) -> Array:
    if not isinstance(space, Discrete):
        raise ValueError(f"encodes Discrete observations, this one is {space}")
    return np.eye(int(space.n), dtype=np.float32)
