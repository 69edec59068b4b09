"""Proof of memory: which end of a line is good is shown first and needed later.

After PocMemoryEnv of Pleines' recurrent PPO, which CleanRL and RLBenchNet call PoMEnv. There the agent cannot move
while the goals are shown; here it cannot move for another `length` steps, so that memory is needed over any distance.
"""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.envs.vector.tasks import VectorTask, register_task
from ludus.types import Array

LEFT, RIGHT = range(2)
SHOWN = 2
"""Observations with the goals."""
WALK = 5
"""Steps from the middle to either end."""
SPREAD = 2
"""Episodes begin up to this many steps away from the middle."""
PATIENCE = 2 * WALK
"""Moves before dithering costs something."""
DITHERING = np.float32(-0.1)
OPTIMAL, MEMORYLESS = 1.0, 0.0
"""Best mean returns with and without memory, the latter for a length of at least 1."""
THRESHOLD = 0.95


class ProofOfMemory(VectorTask):
    """The good end pays 1, the bad one -1. Observed are the two goals, hidden (0) after two steps, and the place.

    `length`: steps between the last sight of the goals and the first move.
    """

    state = ("_place", "_good", "_age")

    def __init__(self, num: int, length: int = 40) -> None:
        if length < 0:
            raise ValueError(f"length must be at least 0, got {length}")
        super().__init__(num, Box(-1.0, 1.0, (3,), np.float32), Discrete(2), THRESHOLD)
        self._frozen = SHOWN - 1 + length
        self._place, self._good, self._age = np.zeros((3, num), np.int64)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Draw the good end and the place of a row."""
        self._good[i] = good = 2 * rng.integers(2) - 1
        self._place[i] = place = rng.integers(-SPREAD, SPREAD + 1)
        self._age[i] = 0
        self.obs[i] = -good, place / WALK, good

    def step(self, action: Array) -> None:
        """Move every agent that may move."""
        place, age = self._place, self._age
        place += (2 * action - 1) * (age >= self._frozen)
        age += 1
        np.equal(np.abs(place), WALK, self.terminated)
        moves = age - self._frozen
        self.reward[...] = np.where(moves > PATIENCE, DITHERING, np.float32(0))
        if self.terminated.any():
            self.reward[self.terminated] = np.sign(place * self._good)[self.terminated]
        np.greater_equal(moves, 2 * PATIENCE, self.truncated)
        self.truncated &= ~self.terminated
        goal = self._good * (age < SHOWN)
        self.obs[:, 0], self.obs[:, 1], self.obs[:, 2] = -goal, place / WALK, goal


for _id, _length in {"ProofOfMemory-v0": 40, "PocMemoryEnv-v0": 0, "PoMEnv-v0": 0}.items():
    register_task(_id, ProofOfMemory, kwargs={"length": _length})
