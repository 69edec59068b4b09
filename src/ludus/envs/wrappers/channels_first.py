"""Images with their channels first, for wrappers of your own that expect them so."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from ludus.envs.vector import VectorEnv
from ludus.envs.wrappers._image import ImageView, ImageWrapper, Picture
from ludus.registry import WRAPPERS
from ludus.types import Array


@WRAPPERS.register("channels_first")
class ChannelsFirst(ImageWrapper):
    """[H, W] and [H, W, C] become [C, H, W]; every environment gets this in the end."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env, _AsItIs())

    @classmethod
    def vectorize(cls, venv: VectorEnv) -> VectorEnv:
        """Vectors have them first already."""
        return ImageView(venv, _AsItIs())


class _AsItIs(Picture):
    def shape(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        return channels, height, width

    def apply(self, image: Array) -> Array:
        return np.ascontiguousarray(image)
