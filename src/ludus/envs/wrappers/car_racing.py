"""CarRacing as World Models drives it: pedals that one number each can leave alone, and no frame drawn for nobody."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs import Action, StepReturn
from ludus.envs.wrappers.time import FrameSkip
from ludus.types import Array

DRAWN = (96, 96, 3)


class CarControls(gym.ActionWrapper):
    """Steering, gas and brake between -1 and 1 each (Ha & Schmidhuber 2018): half gas at 0, no brake up to 0."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, Box) or env.action_space.shape != (3,):
            raise ValueError(f"needs steering, gas and brake of CarRacing, this one takes {env.action_space}")
        self.action_space = Box(-1.0, 1.0, (3,), np.float32)

    def action(self, action: Action) -> Array:
        """What the car takes."""
        steering, gas, brake = np.clip(action, -1.0, 1.0)
        return np.array([steering, (gas + 1) / 2, max(brake, 0.0)], np.float32)


class CarSkip(FrameSkip):
    """`frame_skip` that draws only the frame it shows: drawing is nearly all the work of a step of CarRacing.

    The score in the panel below counts the step itself, too.
    """

    def __init__(self, env: gym.Env, skip: int | tuple[int, int] = 4) -> None:
        super().__init__(env, skip)
        if not hasattr(env.unwrapped, "_render") or env.observation_space.shape != DRAWN:
            raise ValueError("needs CarRacing's own frames; put it before every wrapper that changes them")

    def step(self, action: Action) -> StepReturn:
        car = self.unwrapped
        car._render = lambda _: None  # type: ignore[attr-defined]
        try:
            _, reward, terminated, truncated, info = super().step(action)
        finally:
            del car._render  # type: ignore[attr-defined]
        car.state = car._render("state_pixels")  # type: ignore[attr-defined]
        return car.state, reward, terminated, truncated, info  # type: ignore[attr-defined]
