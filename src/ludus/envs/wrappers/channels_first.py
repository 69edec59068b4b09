"""Images with their channels first, for wrappers of your own that expect them so, or to say where they are."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs.spaces import image_conversion, is_picture
from ludus.envs.vector import Unsuited, VectorEnv
from ludus.registry import WRAPPERS
from ludus.types import Array


@WRAPPERS.register("channels_first")
class ChannelsFirst(gym.ObservationWrapper):
    """[H, W] and [H, W, C] become [C, H, W]; every environment gets this in the end.

    `channels` is `first` or `last` where the shape alone would be read wrongly, such as [9, 12, 20].
    """

    def __init__(self, env: gym.Env, channels: Literal["auto", "first", "last"] = "auto") -> None:
        super().__init__(env)
        port = image_conversion(_picture(env.observation_space), channels)
        self._move, self.observation_space = port.convert, port.space

    def observation(self, observation: Any) -> Array:
        return np.ascontiguousarray(self._move(observation) if self._move else observation)

    @classmethod
    def vectorize(cls, venv: VectorEnv, channels: str = "auto") -> VectorEnv:
        """Vectors have them first already, where their shape says so."""
        if channels != "auto":
            raise Unsuited("channels_first tells single environments where their channels are")
        _picture(venv.observation_space)
        return venv


def _picture(space: gym.Space) -> Box:
    if not is_picture(space):
        raise ValueError(f"needs images (uint8, 0 to 255), the observation is {space}")
    assert isinstance(space, Box)
    return space
