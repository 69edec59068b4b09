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

    @property
    def leaves(self) -> Array:
        """All weights."""
        return self.levels[0].reshape(-1)[: self.size]

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self.top.sum())

    def set(self, index: Array, weight: Array) -> None:
        """Change some leaves; of an index that comes twice the last weight stays."""
        self.levels[0].reshape(-1)[index] = weight
        for below, above in self._pairs():
            index = index // FAN
            above[index] = below.take(index, 0).sum(1)

    def rebuild(self, leaves: Array) -> None:
        """Take over all leaves."""
        self.levels[0].reshape(-1)[: self.size] = leaves
        for below, above in self._pairs():
            above[: len(below)] = below.sum(1)

    def _pairs(self) -> list[tuple[Array, Array]]:
        above = [level.reshape(-1) for level in self.levels[1:]]
        return list(zip(self.levels, [*above, self.top], strict=True))

    def find(self, mass: Array) -> Array:
        """The leaf in which the running sum of weights passes each `mass` in [0, total): never one of weight 0."""
        sums = np.zeros(len(self.top) + 1)
        np.cumsum(self.top, out=sums[1:])
        mass = np.minimum(mass, np.nextafter(sums[-1], 0.0))  # rounding must not lead past the last node
        row = np.searchsorted(sums[1:], mass, "right")
        mass = mass - sums[row]
        lanes, sums = np.arange(len(mass)), np.zeros((len(mass), FAN + 1))
        for level in reversed(self.levels):
            np.cumsum(level.take(row, 0), 1, out=sums[:, 1:])
            mass = np.minimum(mass, np.nextafter(sums[:, -1], 0.0))
            child = (sums[:, 1:] > mass[:, None]).argmax(1)
            mass = mass - sums[lanes, child]
            row = row * FAN + child
        return row

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Stratified: one draw from each of `count` equal parts of the total."""
        return self.find((np.arange(count) + rng.random(count)) * (self.total / count))
