"""Gymnasium's own controller of the lunar lander: two proportional-derivative rules for angle and height."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np

from ludus.envs.experts import Expert
from ludus.errors import MissingExtra
from ludus.registry import EXPERTS
from ludus.types import Array


@EXPERTS.register("lunar_lander")
class LunarLander(Expert):
    """Lands with either kind of engines."""

    ids = ("LunarLander-v3", "LunarLanderContinuous-v3")

    def __init__(self, action_space: gym.Space, rng: np.random.Generator) -> None:
        super().__init__(action_space, rng)
        try:
            from gymnasium.envs.box2d.lunar_lander import heuristic
        except gym.error.DependencyNotInstalled:
            raise MissingExtra("expert lunar_lander", "box2d") from None
        continuous = isinstance(action_space, gym.spaces.Box)
        self._rule, self._env = heuristic, SimpleNamespace(unwrapped=SimpleNamespace(continuous=continuous))

    def act(self, obs_B: Array, first_B: Array) -> Array:
        """One environment after the other."""
        return np.stack([np.asarray(self._rule(self._env, obs), self.action_space.dtype) for obs in obs_B])
