"""Learn from the picture a spectator sees."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.registry import WRAPPERS
from ludus.types import Array


@WRAPPERS.register("pixels_only")
@WRAPPERS.register("PixelObservationWrapper")
@WRAPPERS.register("AddRenderObservation")
class PixelsOnly(gym.ObservationWrapper):
    """The rendered frame instead of the observation; usually followed by `resize`."""

    needs_frames = True
    """The environment is made for rendering, shown or not."""
    observes = True
    """It replaces the observation, so that a suite's own way to is not needed."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        if env.render_mode != "rgb_array":
            raise ValueError(f"needs an environment that renders 'rgb_array', this one is made for {env.render_mode}")
        env.reset(seed=0)  # most can draw nothing before
        frame = np.asarray(env.render())
        if frame.dtype != np.uint8 or frame.ndim != 3:
            raise ValueError(f"needs uint8 frames, this one renders {frame.dtype} of shape {frame.shape}")
        self.observation_space = Box(0, 255, frame.shape, np.uint8)

    def observation(self, observation: Any) -> Array:
        return np.asarray(self.env.render())
