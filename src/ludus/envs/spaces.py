"""Conversion between an environment's spaces and the spaces that policies compute with.

A policy sees observations as a Box (images channels first), a Discrete from 0, a MultiDiscrete from 0 or a MultiBinary,
in the space's own dtype (float64 becomes float32), or as a Dict or Tuple of these, nested or not: a Dict or Tuple stays
a tree, and every part is converted alone. Actions are a Discrete from 0 or a one-dimensional MultiDiscrete, MultiBinary
or float Box. Other spaces are refused by name: only the user can say how to convert them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ludus.envs import Action, ResetReturn, StepReturn
from ludus.envs.info import is_pixels
from ludus.errors import ConfigError
from ludus.types import Array, State, Tree

IMAGE_CHANNELS = (1, 3, 4)


class Image(spaces.Box):
    """uint8 [C, H, W]: the channels are known to come first."""


class Conversion(NamedTuple):
    """The policy's space, and how values are converted, with any leading batch dimensions."""

    space: gym.Space
    convert: Callable[[Any], Any] | None = None
    """None: values stay unchanged."""

    def __call__(self, value: Tree) -> Tree:
        """The converted value."""
        return value if self.convert is None else self.convert(value)


class ConvertSpaces(gym.Wrapper):
    """The outermost wrapper of an environment whose spaces need a conversion."""

    def __init__(self, env: gym.Env, observation: Conversion, action: Conversion) -> None:
        super().__init__(env)
        self.observation_space, self.action_space = observation.space, action.space
        # plain functions: a snapshot of the environment compares them by name
        self._observe = observation.convert or _unchanged
        self._act = action.convert or _unchanged

    def reset(self, *, seed: int | None = None, options: State | None = None) -> ResetReturn:
        """Reset and convert the observation."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._observe(obs), info

    def step(self, action: Action) -> StepReturn:
        """Convert the action, step, and convert the observation."""
        obs, reward, terminated, truncated, info = self.env.step(self._act(action))
        return self._observe(obs), reward, terminated, truncated, info

    def action(self, action: Action) -> Action:
        """An action as the environment inside takes it."""
        return self._act(action)


def _unchanged(value: Tree) -> Tree:
    return value


def convert_spaces(env: gym.Env, id: str) -> gym.Env:
    """`env` with supported spaces; the same object if it has them already."""
    observation, action = observation_conversion(env.observation_space, id), action_conversion(env.action_space, id)
    return env if observation.convert is None and action.convert is None else ConvertSpaces(env, observation, action)


def observation_conversion(space: gym.Space, id: str, path: str = "") -> Conversion:
    """How a policy sees observations of `space`; `path` names a part of a Dict or Tuple."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _tree(space, id, path)
    if isinstance(space, spaces.Box):
        return _box(space, id, path)
    if isinstance(space, spaces.Discrete):
        return _from_zero(space)
    if isinstance(space, spaces.MultiDiscrete):
        return _vector_of_choices(space)
    if isinstance(space, spaces.MultiBinary):
        shape = space.shape
        flat = spaces.MultiBinary(int(np.prod(shape)))
        reshaped = Conversion(flat, lambda o: np.reshape(o, (*np.shape(o)[: -len(shape)], -1)))
        return Conversion(space) if len(shape) == 1 else reshaped
    remedy = "leaves that part out" if path else "returns a Box, Discrete or Dict of them"
    raise _refused(id, "observation", space, f"wrap the environment so that it {remedy}", path)


def _tree(space: spaces.Dict | spaces.Tuple, id: str, path: str) -> Conversion:
    """Part by part; the structure stays."""
    pairs: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    parts: dict[Any, Conversion] = {
        key: observation_conversion(part, id, f"{path}.{key}".lstrip(".")) for key, part in pairs
    }
    if not parts or (isinstance(space, spaces.Dict) and not all(isinstance(key, str) for key in parts)):
        raise _refused(id, "observation", space, "wrap the environment so that it names its parts", path)
    if all(part.convert is None for part in parts.values()):
        return Conversion(space)
    seen = {key: part.space for key, part in parts.items()}
    if isinstance(space, spaces.Dict):
        return Conversion(spaces.Dict(seen), lambda obs: {key: part(obs[key]) for key, part in parts.items()})
    return Conversion(spaces.Tuple(seen.values()), lambda obs: tuple(parts[i](value) for i, value in enumerate(obs)))


def action_conversion(space: gym.Space, id: str) -> Conversion:
    """How actions reach an environment with `space`."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return Conversion(space) if start == 0 else Conversion(_from_zero(space).space, lambda action: action + start)
    if isinstance(space, spaces.MultiDiscrete):
        begin, choices = space.start, space.shape
        plain = len(choices) == 1 and not np.any(begin)
        flat = spaces.MultiDiscrete(space.nvec.ravel(), dtype=space.dtype)
        return (
            Conversion(space) if plain else Conversion(flat, lambda a: np.reshape(a, (*a.shape[:-1], *choices)) + begin)
        )
    if isinstance(space, spaces.MultiBinary):
        return _one_dimensional(space, lambda: spaces.MultiBinary(int(np.prod(space.shape))))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = np.ravel(space.low), np.ravel(space.high)
        return _one_dimensional(space, lambda: spaces.Box(low, high, dtype=space.dtype))
    raise _refused(id, "action", space, "wrap the environment so that it takes a Discrete, MultiDiscrete or float Box")


def _refused(id: str, kind: str, space: gym.Space, remedy: str, path: str = "") -> ConfigError:
    what = f"{type(space).__name__} of {space.dtype}" if isinstance(space, spaces.Box) else type(space).__name__
    part = f" (at '{path}')" if path else ""
    return ConfigError("environment.id", f"'{id}' has a {what} {kind} space{part}, which is not supported", remedy)


def _from_zero(space: spaces.Discrete) -> Conversion:
    start = int(space.start)
    if start == 0:
        return Conversion(space)
    return Conversion(spaces.Discrete(int(space.n)), lambda value: value - start)


def _vector_of_choices(space: spaces.MultiDiscrete) -> Conversion:
    begin, ndim = space.start, len(space.shape)
    if ndim == 1 and not np.any(begin):
        return Conversion(space)
    flat = spaces.MultiDiscrete(space.nvec.ravel(), dtype=space.dtype)
    return Conversion(flat, lambda o: np.reshape(o - begin, (*np.shape(o)[:-ndim], -1)))


def _one_dimensional(space: gym.Space, flat: Callable[[], gym.Space]) -> Conversion:
    shape = space.shape or ()
    return (
        Conversion(space) if len(shape) == 1 else Conversion(flat(), lambda a: np.reshape(a, (*a.shape[:-1], *shape)))
    )


def _box(space: spaces.Box, id: str, path: str) -> Conversion:
    if not np.issubdtype(space.dtype, np.number) or np.issubdtype(space.dtype, np.complexfloating):
        raise _refused(id, "observation", space, "wrap the environment so that it returns numbers", path)
    if space.dtype == np.float64:
        single = spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
        return Conversion(single, lambda value: np.asarray(value, np.float32))
    return image_conversion(space) if is_picture(space) else Conversion(space)


def is_picture(space: gym.Space) -> bool:
    """A uint8 Box of three dimensions, or of two with values from 0 to 255."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    return len(space.shape) == 3 or (len(space.shape) == 2 and is_pixels(space))


def image_conversion(space: spaces.Box, channels: Literal["auto", "first", "last"] = "auto") -> Conversion:
    """How an image becomes [C, H, W]; `channels` says where they are in a space of three dimensions."""
    if len(space.shape) == 2:
        return _moved(space, lambda image: image[..., None, :, :])
    known = channels == "first" or (channels == "auto" and isinstance(space, Image))
    if known or (channels == "auto" and not channels_last(space.shape)):
        return Conversion(space if isinstance(space, Image) else Image(space.low, space.high, dtype=np.uint8))
    return _moved(space, lambda image: np.moveaxis(image, -1, -3))


def channels_last(shape: tuple[int, ...]) -> bool:
    """Whether an image is read as [H, W, C] rather than [C, H, W].

    Two equal neighbouring sides are height and width. Otherwise the first or last side is the channels if it is 1, 3 or
    4; if that does not decide, the shorter of the two is; the last one if they are equal.
    """
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return first == middle
    if (first in IMAGE_CHANNELS) != (last in IMAGE_CHANNELS):
        return last in IMAGE_CHANNELS
    return last <= first


def _moved(space: spaces.Box, move: Callable[[Array], Array]) -> Conversion:
    return Conversion(Image(move(space.low), move(space.high), dtype=np.uint8), move)
