"""Wrappers that change vector and discrete observations, of one environment or of a whole vector at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete

from ludus.envs import Observation
from ludus.envs.info import is_pixels
from ludus.envs.vector import VectorEnv
from ludus.envs.vector.vector_wrapper import VectorWrapper
from ludus.types import Array


class BatchObservation(gym.ObservationWrapper):
    """Base of wrappers whose `observation` also takes a batch [B, ...], so that they work on native backends."""

    @classmethod
    def vectorize(cls, venv: VectorEnv, **arguments: object) -> VectorEnv:
        """The same for a whole vector at once."""
        return _Converted(venv, cls(_Spaces(venv), **arguments))


class _Spaces(gym.Env):
    """Stands for the environment of a wrapper that only converts."""

    def __init__(self, venv: VectorEnv) -> None:
        self.observation_space, self.action_space = venv.observation_space, venv.action_space


class _Converted(VectorWrapper):
    def __init__(self, inner: VectorEnv, wrapper: gym.ObservationWrapper) -> None:
        super().__init__(inner, wrapper.observation_space)
        self._wrapper = wrapper

    def convert(self, obs: Array) -> Array:
        """What the wrapper makes of the batch."""
        converted: Array = self._wrapper.observation(obs)
        return converted


class MaskObservation(BatchObservation):
    """Sets the entries `indices` of a vector to zero, or drops them: partial observability on purpose."""

    def __init__(self, env: gym.Env, indices: Sequence[int], mode: Literal["zero", "drop"] = "zero") -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise ValueError(f"masks the entries of a vector, the observation is {space}")
        size = space.shape[0]
        if not indices or any(not 0 <= i < size for i in indices):
            raise ValueError(f"indices must lie in 0 to {size - 1}, got {list(indices)}")
        hidden = sorted(set(indices))
        self._kept = [i for i in range(size) if i not in hidden] if mode == "drop" else None
        if self._kept == []:
            raise ValueError("drops the whole observation")
        self._keep = np.ones(size, space.dtype)
        self._keep[hidden] = 0
        low, high = space.low.copy(), space.high.copy()
        low[hidden], high[hidden] = (0, 1) if space.dtype.kind == "u" else (-1, 1)  # finite bounds around the zero
        if self._kept is not None:
            low, high = low[self._kept], high[self._kept]
        self.observation_space = Box(low, high, dtype=space.dtype)

    def observation(self, observation: Observation) -> Array:
        """[..., D] in a new array."""
        masked: Array = observation * self._keep if self._kept is None else observation[..., self._kept]
        return masked


class ScaleObservation(BatchObservation):
    """Maps a bounded observation linearly onto [low, high], as float32. Images stay uint8: the network scales them."""

    def __init__(self, env: gym.Env, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, Box) or not space.is_bounded() or not (space.low < space.high).all():
            raise ValueError(f"needs a Box with finite bounds, the observation is {space}")
        if is_pixels(space) and len(space.shape) > 1:
            raise ValueError("images stay uint8, the network scales them; `flatten` first makes them vectors")
        _require_order(low, high)
        self._bottom, self._low, self._high = space.low.astype(float), low, high
        self._factor = (high - low) / (space.high.astype(float) - self._bottom)
        self.observation_space = Box(low, high, space.shape, np.float32)

    def observation(self, observation: Observation) -> Array:
        """[..., D] in a new array."""
        scaled = self._low + (np.asarray(observation, float) - self._bottom) * self._factor
        return np.clip(scaled, self._low, self._high).astype(np.float32)  # rounding may overshoot


class NormalizeObservation(BatchObservation):
    """(observation - mean) / std of a vector, as float32; `environment.normalize_obs: rolling` estimates both."""

    def __init__(self, env: gym.Env, mean: float | list[float], std: float | list[float]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise ValueError(f"normalizes vectors, the observation is {space}")
        self._mean, self._std = (self._vector(name, value) for name, value in (("mean", mean), ("std", std)))
        if not (self._std > 0).all():
            raise ValueError(f"std must be positive, got {std}")
        self.observation_space = Box(self.observation(space.low), self.observation(space.high), dtype=np.float32)

    def observation(self, observation: Observation) -> Array:
        """[..., D] in a new array."""
        normalized: Array = ((np.asarray(observation, float) - self._mean) / self._std).astype(np.float32)
        return normalized

    def _vector(self, name: str, value: float | list[float]) -> Array:
        (size,) = self.env.observation_space.shape or ()
        vector = np.array(value, float)
        if vector.shape not in ((), (size,)) or not np.isfinite(vector).all():
            raise ValueError(f"{name} must be a finite number or {size} of them, got {value}")
        return np.broadcast_to(vector, (size,)).copy()


class ClipObservation(BatchObservation):
    """Clips every number of an observation to [low, high]."""

    def __init__(self, env: gym.Env, low: float = -10.0, high: float = 10.0) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, Box) or space.dtype.kind != "f":
            raise ValueError(f"clips vectors of floats, the observation is {space}")
        _require_order(low, high)
        self._low, self._high = low, high
        self.observation_space = Box(self.observation(space.low), self.observation(space.high), dtype=space.dtype)

    def observation(self, observation: Observation) -> Array:
        """[..., D] in a new array."""
        return np.clip(observation, self._low, self._high)


class CastObservation(BatchObservation):
    """For environments that return float64 (or lists) in a float32 space: they are cast on request, never silently."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        if not isinstance(env.observation_space, Box):
            raise ValueError(f"casts Box observations, this one is {env.observation_space}")

    def observation(self, observation: Observation) -> Array:
        """The observation in the dtype of its space."""
        return np.asarray(observation, self.observation_space.dtype)


class Flatten(gym.ObservationWrapper):
    """Any observation of numbers as one float32 vector: boxes row by row, discretes one-hot, parts joined."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        box = spaces.flatten_space(env.observation_space)
        if not isinstance(box, Box):
            raise ValueError(f"cannot flatten {env.observation_space}")
        self.observation_space = Box(box.low.astype(np.float32), box.high.astype(np.float32), dtype=np.float32)

    def observation(self, observation: Observation) -> Array:
        """float32 [D]."""
        return np.asarray(spaces.flatten(self.env.observation_space, observation), np.float32)


class DiscreteEncoder(BatchObservation):
    """A discrete observation as a float32 vector.

    `array`: the number itself, `binary`: its bits (lowest first), `onehot`: a unit vector.
    """

    def __init__(self, env: gym.Env, encoding: Literal["array", "binary", "onehot"] = "array") -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, Discrete):
            raise ValueError(f"encodes Discrete observations, this one is {space}")
        self._start, count = int(space.start), int(space.n)
        bits = max(1, (count - 1).bit_length())
        tables: dict[str, Array] = {
            "array": np.arange(count)[:, None],
            "binary": np.arange(count)[:, None] >> np.arange(bits) & 1,
            "onehot": np.eye(count),
        }
        self._codes = tables[encoding].astype(np.float32)
        self.observation_space = Box(0.0, float(self._codes.max(initial=1)), self._codes[0].shape, np.float32)

    def observation(self, observation: Observation) -> Array:
        """[..., D] in a new array."""
        return np.take(self._codes, np.asarray(observation) - self._start, axis=0)


class OneHot(DiscreteEncoder):
    """A discrete observation as a unit vector, for wrappers that need vectors; networks encode it so anyway."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env, "onehot")


def _require_order(low: float, high: float) -> None:
    if low >= high:
        raise ValueError(f"low must be below high, got {low} and {high}")
