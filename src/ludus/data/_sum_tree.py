"""A sum tree whose nodes have many children: a handful of wide numpy operations instead of twenty narrow ones.

Every node is the sum of its children computed anew, never adjusted by a difference: sums depend on the leaves alone, so
that a tree rebuilt from saved leaves is the same to the last bit.
"""

from __future__ import annotations

import numpy as np

from ludus.types import Array

FAN = 16
TOP = 4096
"""Nodes of the highest level, at most: a running sum over all of them is as fast as going down further levels."""
RUNNING = np.triu(np.ones((FAN, FAN)))
"""Siblings times this are their running sums, three times as fast as `cumsum` of short rows. Where a sibling weighs
nothing, two columns add up the same terms and come out the same, so that it is never found."""


class SumTree:
    """Non-negative weights of `size` leaves; draws leaves in proportion to them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.levels: list[Array] = []  # leaves first, each level in rows of FAN siblings
        count = size
        while count > TOP or not self.levels:
            count = -(-count // FAN)
            self.levels.append(np.zeros((count, FAN)))
        self.top = np.zeros(count)
        self._running = np.zeros(count + 1)
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
        """Running sums of the highest level, from 0 on; added up when they are wanted after a change."""
        if self._stale:
            np.cumsum(self.top, out=self._running[1:])
            self._stale = False
        return self._running

    def set(self, index: Array, weight: Array) -> None:
        """Change some leaves; of an index that comes twice the last weight stays."""
        self.levels[0].reshape(-1)[index] = weight
        for below, above in self._pairs():
            index = index // FAN
            above[index] = below.take(index, 0).sum(1)
        self._stale = True

    def rebuild(self, leaves: Array) -> None:
        """Take over all leaves."""
        self.levels[0].reshape(-1)[: self.size] = leaves
        for below, above in self._pairs():
            above[: len(below)] = below.sum(1)
        self._stale = True

    def _pairs(self) -> list[tuple[Array, Array]]:
        above = [level.reshape(-1) for level in self.levels[1:]]
        return list(zip(self.levels, [*above, self.top], strict=True))

    def find(self, mass: Array) -> Array:
        """The leaf in which the running sum of weights passes each `mass` in [0, total): never one of weight 0."""
        running = self.running
        mass = np.minimum(mass, np.nextafter(running[-1], 0.0))  # rounding must not lead past the last node
        row = np.searchsorted(running[1:], mass, "right")
        mass = mass - running[row]
        rows = np.arange(0, len(mass) * FAN, FAN)
        for level in reversed(self.levels):
            sums = level.take(row, 0) @ RUNNING
            mass = np.minimum(mass, np.nextafter(sums[:, -1], 0.0))
            child = (sums > mass[:, None]).argmax(1)
            before = sums.reshape(-1).take(rows + (child - 1), mode="wrap")
            mass = mass - np.where(child, before, 0.0)
            row = row * FAN + child
        return row

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Stratified: one draw from each of `count` equal parts of the total."""
        return self.find((np.arange(count) + rng.random(count)) * (self.total / count))
