"""A part of an image."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from ludus.envs.vector import VectorEnv
from ludus.envs.wrappers._image import ImageView, ImageWrapper, Picture
from ludus.registry import WRAPPERS
from ludus.types import Array


@WRAPPERS.register("crop")
@WRAPPERS.register("Crop")
@WRAPPERS.register("CropObservation")
class Crop(ImageWrapper):
    """Leaves out rows and columns at the edges: a score, say, or a control panel."""

    def __init__(self, env: gym.Env, top: int = 0, bottom: int = 0, left: int = 0, right: int = 0) -> None:
        super().__init__(env, _Crop(top, bottom, left, right))

    @classmethod
    def vectorize(cls, venv: VectorEnv, top: int = 0, bottom: int = 0, left: int = 0, right: int = 0) -> VectorEnv:
        """The same for a whole vector at once."""
        return ImageView(venv, _Crop(top, bottom, left, right))


class _Crop(Picture):
    def __init__(self, top: int, bottom: int, left: int, right: int) -> None:
        if min(top, bottom, left, right) < 0:
            raise ValueError(f"edges cannot be negative, got top={top} bottom={bottom} left={left} right={right}")
        self._edges = (top, bottom, left, right)

    def shape(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        top, bottom, left, right = self._edges
        if top + bottom >= height or left + right >= width:
            raise ValueError(f"leaves nothing of an image of {height}x{width}")
        self._box = (top, height - bottom, left, width - right)
        return channels, height - top - bottom, width - left - right

    def apply(self, image: Array) -> Array:
        top, bottom, left, right = self._box
        return np.ascontiguousarray(image[..., top:bottom, left:right])
