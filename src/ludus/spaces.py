"""The conversion between the spaces of environments or data sets and those that policies compute with.

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

from ludus.errors import ConfigError
from ludus.types import Array, Tree

IMAGE_CHANNELS = (1, 3, 4)


def is_image(space: gym.Space) -> bool:
    """Pixels with a channel dimension."""
    return is_pixels(space) and len(space.shape or ()) == 3


def is_pixels(space: gym.Space) -> bool:
    """A uint8 Box over the whole range 0 to 255."""
    box = isinstance(space, gym.spaces.Box) and space.dtype == np.uint8
    return box and bool((space.low == 0).all() and (space.high == 255).all())  # type: ignore[attr-defined]


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


def observation_conversion(space: gym.Space, id: str, path: str = "") -> Conversion:
    """How a policy sees observations of `space`; `path` names a part of a Dict or Tuple."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _tree(space, id, path)
    if isinstance(space, spaces.Box):
        return _box(space, id, path)
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return _plain(space, lambda value: value - first)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        begin, ndim = getattr(space, "start", 0), len(space.shape)
        return _plain(space, lambda value: np.reshape(value - begin, (*np.shape(value)[:-ndim], -1)))
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
    shape = space.shape or ()
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return _plain(space, lambda action: action + first)
    if isinstance(space, spaces.MultiDiscrete):
        begin = space.start
        return _plain(space, lambda action: np.reshape(action, (*action.shape[:-1], *shape)) + begin)
    if isinstance(space, spaces.MultiBinary) or (isinstance(space, spaces.Box) and space.dtype.kind == "f"):
        return _plain(space, lambda action: np.reshape(action, (*action.shape[:-1], *shape)))
    raise _refused(id, "action", space, "wrap the environment so that it takes a Discrete, MultiDiscrete or float Box")


def _refused(id: str, kind: str, space: gym.Space, remedy: str, path: str = "") -> ConfigError:
    what = f"{type(space).__name__} of {space.dtype}" if isinstance(space, spaces.Box) else type(space).__name__
    part = f" (at '{path}')" if path else ""
    return ConfigError("environment.id", f"'{id}' has a {what} {kind} space{part}, which is not supported", remedy)


def _plain(space: Any, convert: Callable[[Any], Any]) -> Conversion:
    """`space` itself if its values are numbers from 0 or vectors; else one of those, which `convert` converts."""
    if isinstance(space, spaces.Discrete):
        return Conversion(space) if space.start == 0 else Conversion(spaces.Discrete(int(space.n)), convert)
    if len(space.shape) == 1 and not np.any(getattr(space, "start", 0)):
        return Conversion(space)
    if isinstance(space, spaces.MultiDiscrete):
        return Conversion(spaces.MultiDiscrete(space.nvec.ravel(), dtype=space.dtype), convert)
    if isinstance(space, spaces.MultiBinary):
        return Conversion(spaces.MultiBinary(int(np.prod(space.shape))), convert)
    return Conversion(spaces.Box(np.ravel(space.low), np.ravel(space.high), dtype=space.dtype), convert)


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


def scale_from(space: gym.Space) -> Callable[[Array], Array]:
    """From the bounds of a Box back to the unit box; discrete actions stay."""
    if not isinstance(space, spaces.Box):
        return lambda taken: taken
    width = np.where(space.high > space.low, space.high - space.low, 1.0)
    return lambda taken: np.clip(2 * (taken - space.low) / width - 1, -1.0, 1.0).astype(np.float32)
