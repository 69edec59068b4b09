"""Wrappers that convert images; whatever order the axes come in, they leave channels first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs import Observation
from ludus.envs.vector import Unsuited, VectorEnv
from ludus.envs.wrappers.observations import observation_wrapper
from ludus.spaces import Conversion, Image, image_conversion, is_picture, is_pixels, observation_conversion
from ludus.types import Array

BITS = 15
GRAY = np.array([9798, 19235, 3735], np.uint32)
"""0.299, 0.587 and 0.114 of ITU-R BT.601 in 15 bits, as OpenCV rounds them."""
ATARI = (84, 84)
EXACT = 1 << 14
"""Units of a new pixel up to which float32 neither loses one nor rounds to the wrong side."""
Size = Literal[True] | int | tuple[int, int]


def _channels_first(space: gym.Space) -> tuple[Conversion, int, int, int]:
    """How images get their channels first, and their [C, H, W]."""
    if not is_pixels(space) or len(space.shape or ()) not in (2, 3):
        raise ValueError(f"needs images (uint8, 0 to 255), the observation is {space}")
    move = observation_conversion(space, "")
    channels, height, width = move.space.shape or ()
    return move, channels, height, width


def _converted(move: Conversion, shape: tuple[int, int, int], function: Callable[[Array], Array]) -> Conversion:
    return Conversion(Image(0, 255, shape, np.uint8), lambda image: function(move(image)))


@observation_wrapper
def unflatten(space: gym.Space, shape: tuple[int, int] | tuple[int, int, int]) -> Conversion:
    """A flat image as one of `shape`, [H, W], [H, W, C] or [C, H, W]; it leaves as [C, H, W]."""
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise ValueError(f"needs a vector, the observation is {space}")
    if min(shape) < 1 or math.prod(shape) != space.shape[0]:
        raise ValueError(f"shape {list(shape)} has {math.prod(shape):,} numbers, the observation {space.shape[0]:,}")
    whole = Box(space.low.reshape(shape), space.high.reshape(shape), dtype=space.dtype.type)
    move = observation_conversion(whole, "")
    return Conversion(move.space, lambda flat: move(np.reshape(flat, (*np.shape(flat)[:-1], *shape))))


@observation_wrapper
def grayscale(space: gym.Space) -> Conversion:
    """RGB images as one channel, equal to `cv2.cvtColor` to the bit. Gray images pass."""
    move, channels, height, width = _channels_first(space)
    if channels not in (1, 3):
        raise ValueError(f"makes gray of 3 channels, the image has {channels}; put it before frame_stack")

    def gray(image: Array) -> Array:
        """The brightness of each pixel."""
        red, green, blue = (image[..., i, None, :, :] * weight for i, weight in enumerate(GRAY))
        brightness: Array = ((red + green + blue + (1 << (BITS - 1))) >> BITS).astype(np.uint8)
        return brightness

    return move if channels == 1 else _converted(move, (1, height, width), gray)


@observation_wrapper
def crop(space: gym.Space, top: int = 0, bottom: int = 0, left: int = 0, right: int = 0) -> Conversion:
    """Leaves out rows and columns at the edges: a score, say, or a control panel."""
    if min(top, bottom, left, right) < 0:
        raise ValueError(f"edges cannot be negative, got top={top} bottom={bottom} left={left} right={right}")
    move, channels, height, width = _channels_first(space)
    if top + bottom >= height or left + right >= width:
        raise ValueError(f"leaves nothing of an image of {height}x{width}")
    rows, columns = slice(top, height - bottom), slice(left, width - right)
    shape = (channels, height - top - bottom, width - left - right)
    return _converted(move, shape, lambda image: np.ascontiguousarray(image[..., rows, columns]))


@observation_wrapper
def resize(space: gym.Space, size: Size = True) -> Conversion:
    """Every new pixel is the mean of the area it covers: OpenCV's INTER_AREA without its rounding errors.

    `size` is a side, or height and width; True is 84.
    """
    wanted = ATARI if size is True else (size, size) if isinstance(size, int) else size
    if min(wanted) < 1:
        raise ValueError(f"size must be positive, got {size}")
    move, channels, height, width = _channels_first(space)
    if (height, width) == wanted:
        return move
    rows, down = coverage(height, wanted[0])
    columns, across = coverage(width, wanted[1])
    # OpenCV rounds x.5 to the even number, but up at half the size and when enlarging.
    ties_up = wanted == (height / 2, width / 2) or min(wanted[0] - height, wanted[1] - width) > 0
    # Whole numbers up to the one division: the mean is exact whatever the order of the sum.
    total = down * across
    dtype = np.float32 if total < EXACT else np.float64
    rows, columns = rows.astype(dtype), np.ascontiguousarray(columns.T, dtype)

    def means(image: Array) -> Array:
        """The mean of each area, rounded."""
        sums = rows @ (image.astype(dtype) @ columns)
        sums /= total
        if ties_up:
            sums += 0.5
        else:
            np.rint(sums, out=sums)
        resized: Array = sums.astype(np.uint8)
        return resized

    return _converted(move, (channels, *wanted), means)


def coverage(old: int, new: int) -> tuple[Array, int]:
    """How much of each old pixel every new one covers [new, old], in whole units, and the units of a new one."""
    common = math.gcd(old, new)
    old_units, new_units = new // common, old // common  # both lines are old * new / common units long
    begin, left = np.arange(new)[:, None] * new_units, np.arange(old)[None, :] * old_units
    overlap = np.minimum(begin + new_units, left + old_units) - np.maximum(begin, left)
    return np.maximum(overlap, 0), new_units


class ChannelsFirst(gym.ObservationWrapper):
    """[H, W] and [H, W, C] become [C, H, W]; every environment gets this in the end.

    `channels` is `first` or `last` where the shape alone would be read wrongly, such as [9, 12, 20].
    """

    def __init__(self, env: gym.Env, channels: Literal["auto", "first", "last"] = "auto") -> None:
        super().__init__(env)
        space = _picture(env.observation_space)
        if channels == "last" and isinstance(space, Image):
            raise ValueError("the channels come first already; put it before the wrapper that moved them")
        self.observation_space, self._move = image_conversion(space, channels)

    def observation(self, observation: Observation) -> Array:
        """[C, H, W]."""
        return np.ascontiguousarray(self._move(observation) if self._move else observation)

    @classmethod
    def vectorize(cls, venv: VectorEnv, channels: str = "auto") -> VectorEnv:
        """Vectors have their channels first already, if the shape tells where they are."""
        if channels != "auto":
            raise Unsuited("channels_first tells single environments where their channels are")
        _picture(venv.observation_space)
        return venv


def _picture(space: gym.Space) -> Box:
    if not isinstance(space, Box) or not is_picture(space):
        raise ValueError(f"needs images (uint8, 0 to 255), the observation is {space}")
    return space


class PixelsOnly(gym.ObservationWrapper):
    """The rendered frame instead of the observation; usually followed by `resize`."""

    needs_frames = True
    """The environment is made with render_mode rgb_array, shown or not."""
    observes = True
    """It replaces the observation, so that the suite's own wrapper for that is left out."""

    def __init__(self, env: gym.Env, pixels_only: Literal[True] = True) -> None:
        super().__init__(env)
        if env.render_mode != "rgb_array":
            raise ValueError(f"needs an environment that renders 'rgb_array', this one is made for {env.render_mode}")
        env.reset(seed=0)  # most environments cannot render before
        frame = np.asarray(env.render())
        if frame.dtype != np.uint8 or frame.ndim != 3:
            raise ValueError(f"needs uint8 frames, this one renders {frame.dtype} of shape {frame.shape}")
        self.observation_space = Box(0, 255, frame.shape, np.uint8)

    def observation(self, observation: Observation) -> Array:
        """The frame."""
        return np.asarray(self.env.render())
