"""MiniGrid's symbolic image alone."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs.spaces import Conversion, observation_conversion
from ludus.envs.wrappers._minigrid import require_minigrid
from ludus.registry import WRAPPERS
from ludus.types import Array

MOST = 10
"""The largest code of an object, a colour or a state."""


@WRAPPERS.register("minigrid_image")
@WRAPPERS.register("ImgObsWrapper")
class MiniGridImage(gym.ObservationWrapper):
    """Object, colour and state of the cells in view, uint8 7x7x3; direction and mission are dropped.

    MiniGrid's own space reaches to 255, as if these codes were brightness.
    """

    observes = True

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.observation_space = _codes(require_minigrid(env)["image"])

    def observation(self, observation: Any) -> Array:
        image: Array = observation["image"]
        return image

    @staticmethod
    def conversion(space: gym.Space) -> Conversion:
        """How EnvPool's batches cross."""
        image = observation_conversion(_codes(space["image"]), "MiniGrid")  # type: ignore[index]
        move = image.convert or (lambda value: value)
        return Conversion(image.space, lambda obs: move(obs["image"]))


def _codes(space: gym.Space) -> Box:
    return Box(0, MOST, space.shape, np.uint8)
