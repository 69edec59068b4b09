"""Memory Gym (Pleines et al., 2023): Mortar Mayhem, Mystery Path and Searing Spotlights, 84 x 84 pixels.

The package pins old versions of Gymnasium and pygame, so it is in no extra: `pip install --no-deps memory-gym`.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import memory_gym
import numpy as np

from ludus.envs import Action, Frame, Options, ResetReturn, StepReturn
from ludus.envs.suites import register
from ludus.text import did_you_mean
from ludus.types import Array


class MemoryGym(gym.Env):
    """One of its environments. `parameters` are Memory Gym's own reset parameters.

    It is never closed: all environments draw on the one screen of pygame, which the others still need.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 25}

    def __init__(self, name: str, parameters: Options = None, render_mode: str | None = None) -> None:
        cls = getattr(memory_gym, f"{name}Env")
        for key in parameters or {}:
            if key not in cls.default_reset_parameters:
                raise ValueError(f"unknown parameter '{key}'; {did_you_mean(key, cls.default_reset_parameters)}")
        self.render_mode, self._parameters = render_mode, parameters
        self._game = cls()
        self.observation_space, self.action_space = self._game.observation_space, self._game.action_space
        self._seen: Array = np.zeros(self.observation_space.shape or (), np.uint8)

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin an episode."""
        super().reset(seed=seed)
        self._game.np_random = self.np_random  # so that snapshots find the one generator
        self._seen, info = self._game.reset(options=self._parameters)
        return self._seen, info

    def step(self, action: Action) -> StepReturn:
        """Step; the end by a time limit is a truncation."""
        game = self._game
        self._seen, reward, done, _, info = game.step(action)
        late = done and getattr(game, "t", 0) == game.max_episode_steps
        cut = late and not info["success"] and getattr(game, "agent_health", 1) > 0
        return self._seen, float(reward), bool(done and not cut), bool(cut), info

    def render(self) -> Frame:
        """uint8 [H, W, 3]."""
        return np.swapaxes(self._seen, 0, 1)  # pygame's arrays begin with x


NAMES = {
    "MortarMayhem": 1_000,
    "GridMortarMayhem": 1_000,
    "EndlessMortarMayhem": 10_000,
    "MysteryPath": 512,
    "GridMysteryPath": 128,
    "EndlessMysteryPath": 10_000,
    "SearingSpotlights": 256,
    "EndlessSearingSpotlights": 10_000,
}
"""Classes of the package, and steps that no episode exceeds."""
for _name, _steps in NAMES.items():
    register(f"MemoryGym/{_name}-v0", f"{__name__}:MemoryGym", max_episode_steps=_steps, kwargs={"name": _name})
