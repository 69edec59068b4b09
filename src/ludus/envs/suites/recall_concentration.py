"""Concentration: turn up pairs of equal cards, two at a time; whatever does not match is turned down again.

Shapes: B rows, N cards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.envs.suites.recall import register
from ludus.envs.vector.tasks import TaskEnv, VectorTask
from ludus.types import Array

OPTIMAL = 1.0
"""With perfect memory all pairs are found: one look at every card and one more flip for each are enough."""
THRESHOLD = 0.9


class Concentration(VectorTask):
    """An action flips one card; every pair found pays its share of 1; an episode has two flips for every card."""

    state = ("_faces", "_up", "_first", "_second", "_age")

    def __init__(self, num: int, pairs: int = 4) -> None:
        if pairs < 2:
            raise ValueError(f"pairs must be at least 2, got {pairs}")
        cards = 2 * pairs
        super().__init__(num, Box(0.0, 1.0, (cards * (pairs + 1),), np.float32), Discrete(cards), THRESHOLD)
        self._pairs, self._limit, self._rows = pairs, 2 * cards, np.arange(num)
        self._pile = np.repeat(np.arange(pairs), 2)
        self._faces, self._up = np.zeros((num, cards), np.int64), np.zeros((num, cards), bool)
        self._first, self._second, self._age = np.zeros((3, num), np.int64)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        self._faces[i] = rng.permutation(self._pile)
        self._up[i], self._age[i] = False, 0
        self._first[i] = self._second[i] = -1
        self._show(slice(i, i + 1))

    def step(self, action: Array) -> None:
        rows, up, first, second = self._rows, self._up, self._first, self._second
        both = np.flatnonzero(second >= 0)  # the last two did not match
        up[both, first[both]] = up[both, second[both]] = False
        first[both] = second[both] = -1
        fresh = ~up[rows, action]  # a card that lies open is no choice
        up[rows, action] = True
        opens, closes = fresh & (first < 0), fresh & (first >= 0)
        match = closes & (self._faces[rows, first] == self._faces[rows, action])
        np.copyto(second, action, where=closes & ~match)
        np.copyto(first, action, where=opens)
        first[match] = -1
        self.reward[...] = match / self._pairs
        self._age += 1
        np.all(up, axis=1, out=self.terminated)
        self.terminated &= second < 0
        self.terminated |= self._age >= self._limit
        self.truncated.fill(False)
        self._show(slice(None))

    def _show(self, rows: Any) -> None:
        """One-hot for each card: face down, or which one it is."""
        shown = np.where(self._up[rows], self._faces[rows] + 1, 0)
        kinds = shown[:, :, None] == np.arange(self._pairs + 1)
        self.obs[rows] = kinds.reshape(len(kinds), -1)


class ConcentrationEnv(TaskEnv):
    """One table of Concentration."""

    def __init__(self, pairs: int = 4, render_mode: str | None = None) -> None:
        super().__init__(Concentration(1, pairs), render_mode)


register(__name__, {"Concentration": ({"pairs": 4}, {"pairs": 8}, {"pairs": 16})})
