"""MiniGrid in colour, as far as the agent sees."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs.wrappers._minigrid import require_minigrid
from ludus.registry import WRAPPERS
from ludus.types import Array


@WRAPPERS.register("minigrid_rgb")
@WRAPPERS.register("RGBImgPartialObsWrapper")
class MiniGridRGB(gym.ObservationWrapper):
    """The agent's view drawn with `tile_size` pixels per cell; with `agent_view_size: 3` and 28 it is 84x84."""

    observes = True

    def __init__(self, env: gym.Env, tile_size: int = 8) -> None:
        super().__init__(env)
        if tile_size < 1:
            raise ValueError(f"tile_size must be at least 1, got {tile_size}")
        rows, columns, _ = require_minigrid(env)["image"].shape
        self._tile, self._game = tile_size, env.unwrapped
        self.observation_space = Box(0, 255, (rows * tile_size, columns * tile_size, 3), np.uint8)

    def observation(self, observation: Any) -> Array:
        game: Any = self._game
        frame: Array = game.get_frame(tile_size=self._tile, agent_pov=True)
        return frame
