"""Wrappers that change images; whatever order the axes come in, they leave channels first."""

from __future__ import annotations

import abc
import math
from typing import Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs import Observation
from ludus.envs.info import is_pixels
from ludus.envs.spaces import Image, image_conversion, is_picture, observation_conversion
from ludus.envs.vector import Unsuited, VectorEnv
from ludus.envs.wrappers.observations import BatchObservation
from ludus.types import Array

Size = Literal[True] | int | tuple[int, int]


class ImageWrapper(BatchObservation, abc.ABC):
    """Base of wrappers for images [..., C, H, W]; a subclass sets its arguments before it calls this constructor."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        space = env.observation_space
        if not is_pixels(space) or len(space.shape or ()) not in (2, 3):
            raise ValueError(f"needs images (uint8, 0 to 255), the observation is {space}")
        port = observation_conversion(space, "")
        self._move = port.convert
        channels, height, width = port.space.shape or ()
        self.observation_space = Image(0, 255, self._prepare(channels, height, width), np.uint8)

    @abc.abstractmethod
    def _prepare(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        """[C, H, W] of the result; ValueError for an image that does not fit."""

    @abc.abstractmethod
    def _apply(self, image: Array) -> Array:
        """The changed image, uint8 [..., C, H, W]."""

    def observation(self, observation: Observation) -> Array:
        """The changed image with its channels first."""
        return self._apply(self._move(observation) if self._move else observation)


class Grayscale(ImageWrapper):
    """RGB images as one channel, equal to `cv2.cvtColor` to the bit. Gray images pass."""

    BITS = 15
    WEIGHTS = np.array([9798, 19235, 3735], np.uint32)
    """0.299, 0.587 and 0.114 of ITU-R BT.601 in 15 bits, as OpenCV rounds them."""

    def _prepare(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        if channels not in (1, 3):
            raise ValueError(f"makes gray of 3 channels, the image has {channels}; put it before frame_stack")
        return 1, height, width

    def _apply(self, image: Array) -> Array:
        if image.shape[-3] == 1:
            return image
        red, green, blue = (image[..., i, None, :, :] * weight for i, weight in enumerate(self.WEIGHTS))
        gray: Array = ((red + green + blue + (1 << (self.BITS - 1))) >> self.BITS).astype(np.uint8)
        return gray


class Crop(ImageWrapper):
    """Leaves out rows and columns at the edges: a score, say, or a control panel."""

    def __init__(self, env: gym.Env, top: int = 0, bottom: int = 0, left: int = 0, right: int = 0) -> None:
        if min(top, bottom, left, right) < 0:
            raise ValueError(f"edges cannot be negative, got top={top} bottom={bottom} left={left} right={right}")
        self._edges = (top, bottom, left, right)
        super().__init__(env)

    def _prepare(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        top, bottom, left, right = self._edges
        if top + bottom >= height or left + right >= width:
            raise ValueError(f"leaves nothing of an image of {height}x{width}")
        self._box = (top, height - bottom, left, width - right)
        return channels, height - top - bottom, width - left - right

    def _apply(self, image: Array) -> Array:
        top, bottom, left, right = self._box
        return np.ascontiguousarray(image[..., top:bottom, left:right])


class Resize(ImageWrapper):
    """Every new pixel is the mean of the area it covers: OpenCV's INTER_AREA without its rounding errors.

    `size` is a side, or height and width; True is 84.
    """

    ATARI = (84, 84)
    EXACT = 1 << 14
    """Units of a new pixel up to which float32 neither loses one nor rounds to the wrong side."""

    def __init__(self, env: gym.Env, size: Size = True) -> None:
        self._size = self.ATARI if size is True else (size, size) if isinstance(size, int) else size
        if min(self._size) < 1:
            raise ValueError(f"size must be positive, got {size}")
        super().__init__(env)

    def _prepare(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        self._same = (height, width) == self._size
        rows, down = coverage(height, self._size[0])
        columns, across = coverage(width, self._size[1])
        # OpenCV rounds x.5 to the even number, but up at half the size and when enlarging.
        self._ties_up = self._size == (height / 2, width / 2) or min(self._size[0] - height, self._size[1] - width) > 0
        # Whole numbers up to the one division: the mean is exact whatever the order of the sum.
        self._total = down * across
        dtype = np.float32 if self._total < self.EXACT else np.float64
        self._rows, self._columns = rows.astype(dtype), np.ascontiguousarray(columns.T, dtype)
        return channels, *self._size

    def _apply(self, image: Array) -> Array:
        if self._same:
            return image
        sums = self._rows @ (image.astype(self._rows.dtype) @ self._columns)
        sums /= self._total
        if self._ties_up:
            sums += 0.5
        else:
            np.rint(sums, out=sums)
        resized: Array = sums.astype(np.uint8)
        return resized


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
        port = image_conversion(_picture(env.observation_space), channels)
        self._move, self.observation_space = port.convert, port.space

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

    def __init__(self, env: gym.Env) -> None:
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
