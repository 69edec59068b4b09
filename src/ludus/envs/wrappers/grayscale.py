"""Colours as brightness."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from ludus.envs.vector import VectorEnv
from ludus.envs.wrappers._image import ImageView, ImageWrapper, Picture
from ludus.registry import WRAPPERS
from ludus.types import Array

BITS = 15
WEIGHTS = np.array([9798, 19235, 3735], np.uint32)
"""0.299, 0.587 and 0.114 of ITU-R BT.601 in 15 bits, as OpenCV rounds them."""


@WRAPPERS.register("grayscale")
@WRAPPERS.register("Grayscale")
@WRAPPERS.register("GrayscaleObservation")
class Grayscale(ImageWrapper):
    """RGB images as one channel; equal to `cv2.cvtColor` to the bit. Gray ones pass."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env, _Gray())

    @classmethod
    def vectorize(cls, venv: VectorEnv) -> VectorEnv:
        """The same for a whole vector at once."""
        return ImageView(venv, _Gray())


class _Gray(Picture):
    def shape(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        if channels not in (1, 3):
            raise ValueError(f"makes gray of 3 channels, the image has {channels}; put it before frame_stack")
        return 1, height, width

    def apply(self, image: Array) -> Array:
        if image.shape[-3] == 1:
            return image
        red, green, blue = (image[..., i, None, :, :] * weight for i, weight in enumerate(WEIGHTS))
        return ((red + green + blue + (1 << (BITS - 1))) >> BITS).astype(np.uint8)
