"""A sum tree whose nodes have many children: a handful of wide numpy operations instead of twenty narrow ones.

Every node is the sum of its children computed anew, never adjusted by a difference: sums depend on the leaves alone, so
that a tree rebuilt from saved leaves is the same to the last bit.
"""

from __future__ import annotations

import numpy as np

from ludus.types import Array

FAN = 8
TOP = 4096
"""Most nodes of the highest level: running sums over all of them are as fast as one more level."""
BEFORE = np.triu(np.ones((FAN, FAN)), 1)
"""Siblings times this matrix are the sums of the siblings before each one, three times as fast as `cumsum` of short
rows. A sibling of weight 0 adds no term, so that its sum equals the next one exactly, and `find` never stops at it."""


class SumTree:
    """Non-negative weights of `size` leaves; draws leaves in proportion to them."""

    def __init__(self, size: int) -> None:
        self.size = size
        depth = 1
        while -(-size // FAN**depth) > TOP:
            depth += 1
        self.top = np.zeros(-(-size // FAN**depth))
        # leaves first, each level in rows of FAN siblings; missing children have weight 0
        self.levels = [np.zeros((len(self.top) * FAN**above, FAN)) for above in reversed(range(depth))]
        self._running = np.zeros(len(self.top) + 1)
        self._stale = False

    @property
    def leaves(self) -> Array:
        """All weights."""
        return self.levels[0].reshape(-1)[: self.size]

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self.running[-1])

    @property
    def running(self) -> Array:
        """Running sums of the highest level, beginning with 0; computed again when they are read after a change."""
        if self._stale:
            np.cumsum(self.top, out=self._running[1:])
            self._stale = False
        return self._running

    def set(self, index: Array, weight: Array) -> None:
        """Change some leaves; for an index given twice the last weight counts."""
        self.levels[0].reshape(-1)[index] = weight
        for below, above in self._pairs():
            index = index // FAN
            above[index] = below.take(index, 0).sum(1)
        self._stale = True

    def rebuild(self, leaves: Array) -> None:
        """Replace all leaves."""
        self.levels[0].reshape(-1)[: self.size] = leaves
        for below, above in self._pairs():
            above[:] = below.sum(1)
        self._stale = True

    def _pairs(self) -> list[tuple[Array, Array]]:
        above = [level.reshape(-1) for level in self.levels[1:]]
        return list(zip(self.levels, [*above, self.top], strict=True))

    def find(self, mass: Array) -> Array:
        """The leaf in which the running sum of weights passes each `mass` in [0, total]: never one of weight 0."""
        sums = self.running
        place = row = np.minimum(sums.searchsorted(mass, "right"), len(self.top)) - 1
        rows = np.arange(0, len(mass) * FAN, FAN)
        for level in reversed(self.levels):
            mass = mass - sums.take(place, mode="clip")
            before = level.take(row, 0, mode="clip") @ BEFORE
            # a True is one bit in a byte of its own, FAN of them are one number
            child = np.bitwise_count((before <= mass[:, None]).view(np.uint64)).reshape(-1) - 1
            sums, place = before.reshape(-1), rows + child
            row = row * FAN + child
        return self._not_past_the_end(row)

    def _not_past_the_end(self, row: Array) -> Array:
        """Rounding may lead past the right leaf to leaves of weight 0: go back to the last one with weight."""
        leaves = self.levels[0].reshape(-1)
        found = leaves.take(row, mode="clip")
        if not found.all():
            for lost in np.flatnonzero(found == 0):
                row[lost] = np.flatnonzero(leaves[: row[lost] + 1])[-1]
        return row

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Stratified: one draw from each of `count` equal parts of the total."""
        return self.find((np.arange(count) + rng.random(count)) * (self.total / count))
