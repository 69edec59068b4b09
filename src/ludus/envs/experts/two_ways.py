"""Around the disc of TwoWays, on either side equally often."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from ludus.envs.experts import Expert
from ludus.registry import EXPERTS
from ludus.types import Array

TURN, HEIGHT, AHEAD, NOISE = -0.6, 0.6, 0.15, 0.05
"""Where the arc begins, its height, how far ahead on it the next step aims, and the deviation of every step."""


@EXPERTS.register("two_ways")
class TwoWaysExpert(Expert):
    """Goes straight on, then along an arc; every episode takes the other side than the one that began before it."""

    ids = ("TwoWays-v0",)

    def __init__(self, action_space: gym.Space, rng: np.random.Generator) -> None:
        super().__init__(action_space, rng)
        self._begun, self._side_B = 0, np.zeros(0)

    def act(self, obs_B: Array, first_B: Array) -> Array:
        """A step of length 1 towards a point of the arc, and some noise."""
        sides = 1.0 - 2.0 * ((self._begun + np.cumsum(first_B)) % 2)
        self._side_B = sides if first_B.all() else np.where(first_B, sides, self._side_B)
        self._begun += int(first_B.sum())
        x = np.minimum(obs_B[:, 0] + AHEAD, 1.0)
        arc = self._side_B * HEIGHT * np.cos(np.pi / 2 * np.clip(x / TURN, -1.0, 1.0))
        aim = np.stack([x, np.where(obs_B[:, 0] < TURN, 0.0, arc)], -1) - obs_B
        step = aim / np.maximum(np.linalg.norm(aim, axis=-1, keepdims=True), 1e-6)
        return np.clip(step + NOISE * self.rng.standard_normal(step.shape), -1.0, 1.0).astype(np.float32)
