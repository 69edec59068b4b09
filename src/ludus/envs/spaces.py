"""The border between an environment's spaces and what the lab computes with.

Above the border observations are a Box (images channels first), a Discrete from 0, a MultiDiscrete from 0 or a
MultiBinary, in the space's own dtype (float64 becomes float32); actions are a Discrete from 0 or a one-dimensional
MultiDiscrete, MultiBinary or float Box. What cannot be brought into that form without a choice only the user can make
is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ludus.envs.info import is_pixels
from ludus.errors import ConfigError

IMAGE_CHANNELS = (1, 3, 4)


class Image(spaces.Box):
    """uint8 [C, H, W]: where the channels are is known, and nobody guesses again."""


class Port(NamedTuple):
    """A space as seen from above and how values cross; None: they cross unchanged."""

    space: gym.Space
    convert: Callable[[Any], Any] | None = None
    batched: bool = True
    """`convert` takes any leading batch dimensions."""


class Border(gym.Wrapper):
    """The outermost wrapper of an environment whose spaces need converting."""

    def __init__(self, env: gym.Env, observation: Port, action: Port) -> None:
        super().__init__(env)
        self.observation_space, self.action_space = observation.space, action.space
        self._observe = observation.convert or (lambda value: value)
        self._act = action.convert or (lambda value: value)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._observe(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(self._act(action))
        return self._observe(obs), reward, terminated, truncated, info


def cross(env: gym.Env, id: str) -> gym.Env:
    """`env` with supported spaces; the very same object when it has them already."""
    observation, action = observation_port(env.observation_space, id), action_port(env.action_space, id)
    return env if observation.convert is None and action.convert is None else Border(env, observation, action)


def observation_port(space: gym.Space, id: str) -> Port:
    """How observations of `space` reach the lab."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _flattened(space, id)
    if isinstance(space, spaces.Box):
        return _box(space, id)
    if isinstance(space, spaces.Discrete):
        return _from_zero(space)
    if isinstance(space, spaces.MultiDiscrete):
        return _vector_of_choices(space)
    if isinstance(space, spaces.MultiBinary):
        shape = space.shape
        flat = Port(spaces.MultiBinary(int(np.prod(shape))), lambda o: np.reshape(o, (*np.shape(o)[: -len(shape)], -1)))
        return Port(space) if len(shape) == 1 else flat
    raise _refused(id, "observation", space, "wrap the environment so that it returns a Box, Discrete or Dict of them")


def action_port(space: gym.Space, id: str) -> Port:
    """How actions reach an environment with `space`."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return Port(space) if start == 0 else Port(_from_zero(space).space, lambda action: action + start)
    if isinstance(space, spaces.MultiDiscrete):
        begin, choices = space.start, space.shape
        plain = len(choices) == 1 and not np.any(begin)
        flat = spaces.MultiDiscrete(space.nvec.ravel(), dtype=space.dtype)
        return Port(space) if plain else Port(flat, lambda a: np.reshape(a, (*a.shape[:-1], *choices)) + begin)
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


def _from_zero(space: spaces.Discrete) -> Port:
    start = int(space.start)
    if start == 0:
        return Port(space)
    return Port(spaces.Discrete(int(space.n)), lambda value: value - start)


def _vector_of_choices(space: spaces.MultiDiscrete) -> Port:
    begin, ndim = space.start, len(space.shape)
    if ndim == 1 and not np.any(begin):
        return Port(space)
    flat = spaces.MultiDiscrete(space.nvec.ravel(), dtype=space.dtype)
    return Port(flat, lambda o: np.reshape(o - begin, (*np.shape(o)[:-ndim], -1)))


def _one_dimensional(space: gym.Space, flat: Callable[[], gym.Space]) -> Port:
    shape = space.shape or ()
    return Port(space) if len(shape) == 1 else Port(flat(), lambda a: np.reshape(a, (*a.shape[:-1], *shape)))


def _box(space: spaces.Box, id: str) -> Port:
    if not np.issubdtype(space.dtype, np.number) or np.issubdtype(space.dtype, np.complexfloating):
        raise _refused(id, "observation", space, "wrap the environment so that it returns numbers")
    if space.dtype == np.float64:
        single = spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
        return Port(single, lambda value: np.asarray(value, np.float32))
    return image_port(space) if is_picture(space) else Port(space)


def is_picture(space: gym.Space) -> bool:
    """Bytes of three dimensions, or of two that reach from 0 to 255."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    return len(space.shape) == 3 or (len(space.shape) == 2 and is_pixels(space))


def image_port(space: spaces.Box, channels: Literal["auto", "first", "last"] = "auto") -> Port:
    """How a picture becomes [C, H, W]; `channels` says where they are in a space of three dimensions."""
    if len(space.shape) == 2:
        return _moved(space, lambda image: image[..., None, :, :])
    known = channels == "first" or (channels == "auto" and isinstance(space, Image))
    if known or (channels == "auto" and not channels_last(space.shape)):
        return Port(space if isinstance(space, Image) else Image(space.low, space.high, dtype=np.uint8))
    return _moved(space, lambda image: np.moveaxis(image, -1, -3))


def channels_last(shape: tuple[int, ...]) -> bool:
    """Whether a picture is taken for [H, W, C] rather than [C, H, W].

    Two equal sides side by side are height and width. Without them an end of 1, 3 or 4 is the channels, and if that
    does not decide, the shorter end; the last one, should both be as long.
    """
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return first == middle
    if (first in IMAGE_CHANNELS) != (last in IMAGE_CHANNELS):
        return last in IMAGE_CHANNELS
    return last <= first


def _moved(space: spaces.Box, move: Callable[[Any], Any]) -> Port:
    return Port(Image(move(space.low), move(space.high), dtype=np.uint8), move)


def _flattened(space: spaces.Dict | spaces.Tuple, id: str) -> Port:
    for path, leaf in _leaves(space, ""):
        image = is_pixels(leaf) and len(leaf.shape or ()) >= 2
        if image or not isinstance(leaf, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            remedy = "wrap the environment so that it returns that part alone, or only vectors and discretes"
            raise _refused(id, "observation", leaf, remedy, path)
    box = spaces.flatten_space(space)
    assert isinstance(box, spaces.Box)
    flat = spaces.Box(box.low.astype(np.float32), box.high.astype(np.float32), dtype=np.float32)
    return Port(flat, lambda value: np.asarray(spaces.flatten(space, value), np.float32), batched=False)


def _leaves(space: gym.Space, path: str) -> Iterator[tuple[str, gym.Space]]:
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            yield from _leaves(part, f"{path}.{key}".lstrip("."))
    elif isinstance(space, spaces.Tuple):
        for i, part in enumerate(space):
            yield from _leaves(part, f"{path}.{i}".lstrip("."))
    else:
        yield path, space
