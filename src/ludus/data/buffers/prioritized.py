"""Prioritized experience replay (Schaul et al. 2016, arXiv:1511.05952), the proportional variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from ludus.config.schedule import UnitSchedule, constant
from ludus.data.buffers._sum_tree import SumTree
from ludus.data.buffers.sampling import ROUNDS, Buffer
from ludus.data.buffers.store import REAL, STATE, BufferConfig
from ludus.data.rollout import Rollout
from ludus.registry import BUFFERS
from ludus.types import Array, State


class PrioritizedConfig(BufferConfig):
    """Steps drawn in proportion to their newest error."""

    alpha: float = Field(default=0.6, ge=0, le=1)
    """How much priorities matter; 0 is uniform."""
    beta: UnitSchedule = constant(0.4)
    """How much of the bias the importance weights correct; usually a schedule that ends at 1."""
    eps: float = Field(default=1e-6, gt=0)
    """Added to every error, so that every step can be drawn."""


@BUFFERS.register("prioritized")
class Prioritized(Buffer):
    """Draws a step with probability p^alpha / sum p^alpha, p being its newest error; new steps have the largest p.

    A buffer that keeps memory draws only steps whose memory is stored.
    """

    Config = PrioritizedConfig
    cfg: PrioritizedConfig

    def __init__(self, *arguments: Any, **details: Any) -> None:
        super().__init__(*arguments, **details)
        self.beta = self.cfg.beta.start
        self.largest = 1.0
        self._tree: SumTree | None = None
        self._shown = np.zeros(self.num_envs, np.int64)  # first slots that the tree has not been told about
        self._given_up = np.zeros(self.num_envs, np.int64)

    @property
    def tree(self) -> SumTree:
        """Weights p^alpha of all slots; 0 where there is no step to draw."""
        if self._tree is None:
            self._tree = SumTree(self.num_envs * self.storage.ring)
        return self._tree

    def at(self, position: int, total: int) -> None:
        """Set beta by its schedule."""
        self.beta = self.cfg.beta.at(position, total)

    def add(self, rollout: Rollout, **columns: Array) -> None:
        super().add(rollout, **columns)
        oldest, end = self._oldest, self.storage.end
        if (oldest > self._given_up).any():
            self.tree.set(self.storage.numbers(*self._between(self._given_up, oldest)), np.zeros(1))
        b, a = self._between(np.maximum(self._shown, oldest), end)
        wanted = REAL if self._memory is None else REAL | STATE  # sequences begin where memory is stored
        fits = self._has(b, a, wanted)
        self.tree.set(self.storage.numbers(b, a), np.where(fits, self.largest**self.cfg.alpha, 0.0))
        self._given_up, self._shown = oldest, end.copy()

    def _draw(self, count: int, length: int, wanted: int) -> tuple[Array, Array, Any]:
        tree = self.tree
        if not tree.total:
            raise self._too_early(length)
        index = tree.draw(count, self.rng)
        b = index // self.storage.ring
        a = index - b * self.storage.ring  # modulo the ring: enough to read the slot
        if length > 1 or wanted != REAL:
            index, b, a = self._redraw(index, length, wanted)
        drawn = tree.leaves.take(index, mode="clip")
        # (N P)^-beta, divided by the largest
        return b, a, (drawn.min() / drawn).astype(np.float32) ** np.float32(self.beta)

    def _redraw(self, index: Array, length: int, wanted: int) -> tuple[Array, Array, Array]:
        """Draw again in place of slots that do not fit; from a list of those that do, if they are few."""
        tree = self.tree
        for _ in range(ROUNDS):
            b, position = np.divmod(index, self.storage.ring)
            end = self.storage.end[b]
            a = end - 1 - (end - 1 - position) % self.storage.ring  # the living slot with this index
            bad = np.flatnonzero(~((a + length <= end) & self._has(b, a, wanted)))
            if not len(bad):
                return index, b, a
            index[bad] = tree.find(self.rng.random(len(bad)) * tree.total)
        b, a = self._candidates(length, wanted)
        count, index = len(index), self.storage.numbers(b, a)
        sums = self.tree.leaves[index].cumsum()
        if not sums[-1]:
            raise self._too_early(length)
        chosen = np.minimum(sums.searchsorted(self.rng.random(count) * sums[-1], "right"), len(sums) - 1)
        return index[chosen], b[chosen], a[chosen]

    def update_priorities(self, index: Array, priority: Array) -> None:
        """New errors [N] of drawn steps; errors of dropped steps and errors that are not finite are skipped."""
        priority = np.abs(np.asarray(priority, np.float64)) + self.cfg.eps
        finite = np.isfinite(priority)  # an update that was undone (`on_nan`) has no errors
        self.largest = max(self.largest, float(priority.max(where=finite, initial=0.0)))
        alive = (self.tree.leaves[index] > 0) & finite
        self.tree.set(np.asarray(index)[alive], priority[alive] ** self.cfg.alpha)

    def save(self, tag: str, keep: tuple[str, ...]) -> State:
        """The steps, and all priorities, which are part of the state because they change all the time."""
        priorities = {"weights": self.tree.leaves.astype(np.float64), "largest": self.largest, "beta": self.beta}
        priorities |= {"shown": self._shown, "given_up": self._given_up}
        return {**super().save(tag, keep), "priorities": priorities}

    def load(self, state: State, source: Path | None) -> None:
        super().load(state, source)
        saved = state["priorities"]
        self._tree = None
        self.tree.rebuild(np.asarray(saved["weights"]))
        self.largest, self.beta = float(saved["largest"]), float(saved["beta"])
        self._shown, self._given_up = np.array(saved["shown"]), np.array(saved["given_up"])

    def start_over(self) -> None:
        super().start_over()
        self._tree, self.largest = None, 1.0
        self._shown, self._given_up = np.zeros((2, self.num_envs), np.int64)
