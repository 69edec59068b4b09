"""Images of another size."""

from __future__ import annotations

import math
from typing import Literal

import gymnasium as gym
import numpy as np

from ludus.envs.vector import VectorEnv
from ludus.envs.wrappers._image import ImageView, ImageWrapper, Picture
from ludus.registry import WRAPPERS
from ludus.types import Array

Size = Literal[True] | int | tuple[int, int]
ATARI = (84, 84)
EXACT = 1 << 14
"""Units of a new pixel up to which float32 neither loses one nor rounds to the wrong side."""


@WRAPPERS.register("resize")
@WRAPPERS.register("Resize")
@WRAPPERS.register("ResizeObservation")
class Resize(ImageWrapper):
    """Every new pixel is the mean of the area it covers: OpenCV's INTER_AREA but for its errors of rounding.

    `size` is a side, or height and width; True is 84.
    """

    def __init__(self, env: gym.Env, size: Size = True) -> None:
        super().__init__(env, _Area(size))

    @classmethod
    def vectorize(cls, venv: VectorEnv, size: Size = True) -> VectorEnv:
        """The same for a whole vector at once."""
        return ImageView(venv, _Area(size))


class _Area(Picture):
    def __init__(self, size: Size) -> None:
        self._size = ATARI if size is True else (size, size) if isinstance(size, int) else size
        if min(self._size) < 1:
            raise ValueError(f"size must be positive, got {size}")

    def shape(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        self._same = (height, width) == self._size
        rows, down = coverage(height, self._size[0])
        columns, across = coverage(width, self._size[1])
        # What OpenCV does with x.5: to the even number, but up at half the size and when enlarging.
        self._ties_up = self._size == (height / 2, width / 2) or min(self._size[0] - height, self._size[1] - width) > 0
        # Whole numbers up to the one division: the mean is exact and the order of the sum is no matter.
        self._total = down * across
        dtype = np.float32 if self._total < EXACT else np.float64
        self._rows, self._columns = rows.astype(dtype), np.ascontiguousarray(columns.T, dtype)
        return channels, *self._size

    def apply(self, image: Array) -> Array:
        if self._same:
            return image
        sums = self._rows @ (image.astype(self._rows.dtype) @ self._columns)
        sums /= self._total
        if self._ties_up:
            sums += 0.5
        else:
            np.rint(sums, out=sums)
        return sums.astype(np.uint8)


def coverage(old: int, new: int) -> tuple[Array, int]:
    """How much of each old pixel every new one covers [new, old], in whole units, and the units of a new one."""
    common = math.gcd(old, new)
    old_units, new_units = new // common, old // common  # both lines are old * new / common units long
    begin, left = np.arange(new)[:, None] * new_units, np.arange(old)[None, :] * old_units
    overlap = np.minimum(begin + new_units, left + old_units) - np.maximum(begin, left)
    return np.maximum(overlap, 0), new_units
