"""The base of wrappers that change pictures: whatever order the axes come in, they leave channels first."""

from __future__ import annotations

import abc
from typing import Any

import gymnasium as gym
import numpy as np

from ludus.envs.info import is_pixels
from ludus.envs.spaces import Conversion, Image, observation_conversion
from ludus.envs.vector import VectorEnv
from ludus.envs.vector.vector_wrapper import VectorWrapper
from ludus.types import Array


class Picture(abc.ABC):
    """What is done to images [..., C, H, W]."""

    @abc.abstractmethod
    def shape(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        """[C, H, W] of the result; ValueError for an image that does not fit."""

    @abc.abstractmethod
    def apply(self, image: Array) -> Array:
        """uint8 [..., C, H, W]."""


class ImageWrapper(gym.ObservationWrapper):
    """One environment seen through a Picture."""

    def __init__(self, env: gym.Env, picture: Picture, port: Conversion | None = None) -> None:
        super().__init__(env)
        port = port or channels_first(env.observation_space)
        self._move, self._picture = port.convert, picture
        self.observation_space = _space(port, picture)

    def observation(self, observation: Any) -> Array:
        return self._picture.apply(self._move(observation) if self._move else observation)


class ImageView(VectorWrapper):
    """A whole vector seen through a Picture."""

    def __init__(self, inner: VectorEnv, picture: Picture) -> None:
        super().__init__(inner, _space(channels_first(inner.observation_space), picture))
        self._picture = picture

    def convert(self, obs: Array) -> Array:
        return self._picture.apply(obs)


def channels_first(space: gym.Space) -> Conversion:
    """How images of `space` become uint8 [..., C, H, W]; ValueError when it has none."""
    if not is_pixels(space) or len(space.shape or ()) not in (2, 3):
        raise ValueError(f"needs images (uint8, 0 to 255), the observation is {space}")
    return observation_conversion(space, "")


def _space(port: Conversion, picture: Picture) -> Image:
    channels, height, width = port.space.shape or ()
    return Image(0, 255, picture.shape(channels, height, width), np.uint8)
