"""The T-maze (Bakker, 2001): a sign at the entrance tells which way to turn at the far end of a corridor."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.envs.vector.tasks import VectorTask, register_task
from ludus.types import Array

FORWARD, UP, DOWN = range(3)
CORRIDOR, JUNCTION = 2, 3
"""Entries of an observation; the first two are the sign."""
OPTIMAL, MEMORYLESS = 1.0, 0.0
"""Best mean returns with and without memory."""
THRESHOLD = 0.95
PATIENCE = 5
"""Time limit in lengths of the corridor; a random walk needs three."""
_VIEWS = np.eye(4, dtype=np.float32)


class TMaze(VectorTask):
    """Walking on is free, bumping into a wall costs 1/length; the right turn pays 1, the wrong one -1.

    The turn comes `length` steps after the sign was last seen: without memory it is a coin toss.
    """

    state = ("_place", "_sign", "_age")

    def __init__(self, num: int, length: int = 40) -> None:
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        super().__init__(num, Box(0.0, 1.0, (4,), np.float32), Discrete(3), THRESHOLD)
        self._length, self._limit, self._bump = length, PATIENCE * length + 10, np.float32(-1 / length)
        self._place, self._sign, self._age = np.zeros((3, num), np.int64)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Draw the sign of a row."""
        self._place[i] = self._age[i] = 0
        self._sign[i] = sign = rng.integers(2)
        self.obs[i] = _VIEWS[sign]

    def step(self, action: Array) -> None:
        """Walk or turn."""
        place, length = self._place, self._length
        on, there = action == FORWARD, place == length
        np.greater(there, on, self.terminated)  # a turn at the junction
        moved = on > there
        self.reward[...] = np.where(moved, np.float32(0), self._bump)
        if self.terminated.any():
            right = action - UP == self._sign
            self.reward[self.terminated] = np.where(right, 1, -1)[self.terminated]
        place += moved
        self._age += 1
        np.greater_equal(self._age, self._limit, self.truncated)
        self.truncated &= ~self.terminated
        view = np.where(place == 0, self._sign, np.where(place == length, JUNCTION, CORRIDOR))
        np.take(_VIEWS, view, axis=0, out=self.obs)


for _id, _length in {"TMaze-v0": 40, "TMaze/Short-v0": 10, "TMaze/Long-v0": 160}.items():
    register_task(_id, TMaze, kwargs={"length": _length})
