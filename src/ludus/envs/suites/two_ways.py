"""Two ways around a disc, both equally good; their mean leads into it.

Whoever averages demonstrations of both ways collides: what a policy has to do here is to choose one of them.
"""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box

from ludus.envs.vector.tasks import VectorTask, register_task
from ludus.types import Array

RADIUS = np.float32(0.35)
"""Of the disc in the middle."""
GOAL, NEAR = np.array([1.0, 0.0], np.float32), np.float32(0.15)
"""Where the way ends, and how close is there."""
START, SPREAD = np.array([-1.0, 0.0], np.float32), 0.01
"""Where it begins, and how far away from that at most."""
PACE = np.float32(0.2)
"""Distance of a step of length 1."""
EDGE = 2.0
LIMIT = 40
SOLVED = 0.9


class TwoWays(VectorTask):
    """A point moves by `action` from the left to the right; the goal pays 1, the disc -1, and both end the episode.

    Seen are its two coordinates; `y` above 0 on the way past the disc is the one way, below 0 the other.
    """

    state = ("_age",)

    def __init__(self, num: int) -> None:
        super().__init__(num, Box(-EDGE, EDGE, (2,), np.float32), Box(-1.0, 1.0, (2,), np.float32), SOLVED)
        self._age = np.zeros(num, np.int64)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Draw the start of a row."""
        self._age[i] = 0
        self.obs[i] = START + rng.uniform(-SPREAD, SPREAD, 2)

    def step(self, action: Array) -> None:
        """Move every point."""
        self._age += 1
        np.clip(self.obs + PACE * np.clip(action, -1.0, 1.0), -EDGE, EDGE, out=self.obs)
        hit, there = distance(self.obs) < RADIUS, distance(self.obs - GOAL) < NEAR
        np.logical_or(hit, there, self.terminated)
        self.reward[...] = there.astype(np.float32) - hit
        np.greater_equal(self._age, LIMIT, self.truncated)
        self.truncated &= ~self.terminated


def distance(place_B2: Array) -> Array:
    """From the origin."""
    return np.sqrt(place_B2[:, 0] ** 2 + place_B2[:, 1] ** 2)


register_task("TwoWays-v0", TwoWays)
