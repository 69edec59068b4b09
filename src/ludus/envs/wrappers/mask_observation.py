"""Hide parts of an observation: partial observability on purpose, and only where asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs.vector import VectorEnv
from ludus.envs.vector.vector_wrapper import VectorWrapper
from ludus.registry import WRAPPERS
from ludus.types import Array

Mode = Literal["zero", "drop"]


@WRAPPERS.register("mask_observation")
@WRAPPERS.register("MaskObservation")
@WRAPPERS.register("MaskObservationWrapper")
class MaskObservation(gym.ObservationWrapper):
    """Sets the entries `indices` of a vector observation to zero, or leaves them out."""

    def __init__(self, env: gym.Env, indices: Sequence[int], mode: Mode = "zero") -> None:
        super().__init__(env)
        self._mask = _Mask(env.observation_space, indices, mode)
        self.observation_space = self._mask.space

    def observation(self, observation: Any) -> Any:
        return self._mask.apply(observation)

    @classmethod
    def vectorize(cls, venv: VectorEnv, indices: Sequence[int], mode: Mode = "zero") -> VectorEnv:
        """The same for a whole vector at once."""
        return _MaskedVector(venv, _Mask(venv.observation_space, indices, mode))


class _Mask:
    def __init__(self, space: gym.Space, indices: Sequence[int], mode: Mode) -> None:
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise ValueError(f"masks the entries of a vector, the observation is {space}")
        size = space.shape[0]
        wrong = [i for i in indices if not 0 <= i < size]
        if wrong or not indices:
            raise ValueError(f"indices must lie in 0 to {size - 1}, got {list(indices)}")
        self.hidden = sorted(set(indices))
        self.kept = [i for i in range(size) if i not in self.hidden]
        self.drop = mode == "drop"
        if self.drop and not self.kept:
            raise ValueError("drops the whole observation")
        self._keep = np.ones(size, space.dtype)
        self._keep[self.hidden] = 0
        self.space = self._seen(space)

    def apply(self, obs: Array) -> Array:
        """[..., D] in a new array."""
        return obs[..., self.kept] if self.drop else obs * self._keep

    def _seen(self, space: Box) -> Box:
        low, high = space.low.copy(), space.high.copy()
        if self.drop:
            return Box(low[self.kept], high[self.kept], dtype=space.dtype)
        low[self.hidden], high[self.hidden] = (0, 1) if space.dtype.kind == "u" else (-1, 1)  # finite, around the zero
        return Box(low, high, dtype=space.dtype)


class _MaskedVector(VectorWrapper):
    def __init__(self, inner: VectorEnv, mask: _Mask) -> None:
        super().__init__(inner, mask.space)
        self._mask = mask

    def convert(self, obs: Array) -> Array:
        return self._mask.apply(obs)
