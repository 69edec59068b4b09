"""Wrappers that convert vector and discrete observations, of one environment or of a whole vector at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete

from ludus.envs import Observation
from ludus.envs.vector import VectorEnv, VectorWrapper
from ludus.spaces import Conversion, is_pixels
from ludus.types import Array


class ConvertObservation(gym.ObservationWrapper):
    """Converts observations by a function of their space; see `observation_wrapper`."""

    conversion: ClassVar[Callable[..., Conversion]]
    observes: ClassVar[bool] = False
    """It makes the observations of a suite supported ones."""

    def __init__(self, env: gym.Env, **arguments: object) -> None:
        super().__init__(env)
        self.observation_space, self._convert = self.conversion(env.observation_space, **arguments)

    def observation(self, observation: Observation) -> Observation:
        """The converted observation."""
        return observation if self._convert is None else self._convert(observation)

    @classmethod
    def vectorize(cls, venv: VectorEnv, **arguments: object) -> VectorEnv:
        """The same for a whole vector at once."""
        return _ConvertedVector(venv, cls.conversion(venv.observation_space, **arguments))


class _ConvertedVector(VectorWrapper):
    def __init__(self, inner: VectorEnv, conversion: Conversion) -> None:
        super().__init__(inner, observation_space=conversion.space)
        self._conversion = conversion

    def convert(self, obs: Observation) -> Observation:
        """The converted batch."""
        return self._conversion(obs)


def observation_wrapper(function: Callable[..., Conversion]) -> type[ConvertObservation]:
    """Make a wrapper class of a function from an observation space to a Conversion, which takes any batch dimensions.

    The other arguments of the function are the arguments of the wrapper; a ValueError refuses a space or an argument.
    """
    space, *arguments = inspect.signature(function, eval_str=True).parameters.values()
    body = {
        "conversion": staticmethod(function),
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__signature__": inspect.Signature([space.replace(name="env", annotation=gym.Env), *arguments]),
    }
    return type(function.__name__, (ConvertObservation,), body)


@observation_wrapper
def mask_observation(space: gym.Space, indices: Sequence[int], mode: Literal["zero", "drop"] = "zero") -> Conversion:
    """Sets the entries `indices` of a vector to zero, or drops them: partial observability on purpose."""
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise ValueError(f"masks the entries of a vector, the observation is {space}")
    size = space.shape[0]
    if not indices or any(not 0 <= i < size for i in indices):
        raise ValueError(f"indices must lie in 0 to {size - 1}, got {list(indices)}")
    hidden = sorted(set(indices))
    kept = [i for i in range(size) if i not in hidden]
    if mode == "drop":
        if not kept:
            raise ValueError("drops the whole observation")
        return Conversion(Box(space.low[kept], space.high[kept], dtype=space.dtype), lambda obs: obs[..., kept])
    low, high, keep = space.low.copy(), space.high.copy(), np.ones(size, space.dtype)
    low[hidden], high[hidden] = (0, 1) if space.dtype.kind == "u" else (-1, 1)  # finite bounds around the zero
    keep[hidden] = 0
    return Conversion(Box(low, high, dtype=space.dtype), lambda obs: obs * keep)


@observation_wrapper
def scale_observation(space: gym.Space, low: float = 0.0, high: float = 1.0) -> Conversion:
    """Maps a bounded observation linearly onto [low, high], as float32. Images stay uint8: the network scales them."""
    if not isinstance(space, Box) or not space.is_bounded() or not (space.low < space.high).all():
        raise ValueError(f"needs a Box with finite bounds, the observation is {space}")
    if is_pixels(space) and len(space.shape) > 1:
        raise ValueError("images stay uint8, the network scales them; `flatten` first makes them vectors")
    _require_order(low, high)
    bottom = space.low.astype(float)
    factor = (high - low) / (space.high.astype(float) - bottom)

    def scale(obs: Observation) -> Array:
        """Onto [low, high]; rounding may overshoot."""
        return np.clip(low + (np.asarray(obs, float) - bottom) * factor, low, high).astype(np.float32)

    return Conversion(Box(low, high, space.shape, np.float32), scale)


@observation_wrapper
def normalize_observation(space: gym.Space, mean: float | list[float], std: float | list[float]) -> Conversion:
    """(observation - mean) / std of a vector, as float32; `environment.normalize_obs: rolling` estimates both."""
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise ValueError(f"normalizes vectors, the observation is {space}")
    (size,) = space.shape
    for name, value in (("mean", mean), ("std", std)):
        if np.shape(value) not in ((), (size,)) or not np.isfinite(value).all():
            raise ValueError(f"{name} must be a finite number or {size} of them, got {value}")
    center, deviation = np.array(mean, float), np.array(std, float)
    if not (deviation > 0).all():
        raise ValueError(f"std must be positive, got {std}")

    def normalize(obs: Observation) -> Array:
        """By mean and deviation."""
        normalized: Array = ((np.asarray(obs, float) - center) / deviation).astype(np.float32)
        return normalized

    return Conversion(Box(normalize(space.low), normalize(space.high), dtype=np.float32), normalize)


@observation_wrapper
def clip_observation(space: gym.Space, low: float = -10.0, high: float = 10.0) -> Conversion:
    """Clips every number of an observation to [low, high]."""
    if not isinstance(space, Box) or space.dtype.kind != "f":
        raise ValueError(f"clips vectors of floats, the observation is {space}")
    _require_order(low, high)
    bounds = Box(np.clip(space.low, low, high), np.clip(space.high, low, high), dtype=space.dtype)
    return Conversion(bounds, lambda obs: np.clip(obs, low, high))


@observation_wrapper
def cast_observation(space: gym.Space) -> Conversion:
    """For environments that return float64 (or lists) in a float32 space: they are cast on request, never silently."""
    if not isinstance(space, Box):
        raise ValueError(f"casts Box observations, this one is {space}")
    return Conversion(space, lambda obs: np.asarray(obs, space.dtype))


@observation_wrapper
def discrete_encoder(space: gym.Space, encoding: Literal["array", "binary", "onehot"] = "array") -> Conversion:
    """A discrete observation as a float32 vector.

    `array`: the number itself, `binary`: its bits (lowest first), `onehot`: a unit vector.
    """
    if not isinstance(space, Discrete):
        raise ValueError(f"encodes Discrete observations, this one is {space}")
    start, numbers = int(space.start), np.arange(int(space.n))
    bits = max(1, (len(numbers) - 1).bit_length())
    tables = {
        "array": numbers[:, None],
        "binary": numbers[:, None] >> np.arange(bits) & 1,
        "onehot": np.eye(len(numbers)),
    }
    codes = tables[encoding].astype(np.float32)
    vector = Box(0.0, float(codes.max(initial=1)), codes[0].shape, np.float32)
    return Conversion(vector, lambda obs: np.take(codes, np.asarray(obs) - start, axis=0))


@observation_wrapper
def one_hot(space: gym.Space) -> Conversion:
    """A discrete observation as a unit vector, for wrappers that need vectors; networks encode it so anyway."""
    return discrete_encoder.conversion(space, "onehot")


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


def _require_order(low: float, high: float) -> None:
    if low >= high:
        raise ValueError(f"low must be below high, got {low} and {high}")
