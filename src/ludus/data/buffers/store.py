"""Steps of several environments, stored as they were: what every buffer is built on.

The steps of an environment lie one after the other in numbered slots. An episode's end is followed by one more slot
with its true final observation, so that the observation after a step is always in the next slot: n-step returns,
sequences and stacks of frames need no exceptions. Observations and rewards are stored raw. A slot is (b, a): number `a`
of environment `b`.

Reading order: BufferConfig -> add. Shapes: T time, B environments.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from ludus.config.model import Model
from ludus.data.buffers.frames import ObservationColumns
from ludus.data.buffers.pieces import between
from ludus.data.buffers.segments import ColumnSpec, SegmentFile
from ludus.data.rollout import Rollout
from ludus.types import Array, Spaces, Tree, tree_index, tree_leaves, tree_map, zeros

REAL, TERMINATED, FINAL, STATE = 1, 2, 4, 8
"""Flags of a slot: it has a step with an action; the step terminated the episode; it has a final observation; the
memory before it is stored."""
AUTO_STEPS = 1_000_000
"""Most steps that `size: auto` asks for."""


class BufferConfig(Model):
    """A store of steps that are learned from several times."""

    size: PositiveInt | Literal["auto"] = 100_000
    """Steps it holds over all environments, the final observation of an episode counted as one; `auto` is as many as
    the run will take, up to a million and what `max_gb` allows."""
    max_gb: float | None = Field(default=None, gt=0)
    """Most memory `auto` takes; the default is half of what is free."""
    storage: Literal["ram", "disk"] = "ram"
    """`disk` maps files in the run's folder into memory."""
    frames: PositiveInt = 1
    """Observations (in a Dict, its images) are stacks of this many frames along their first axis: single frames are
    stored, stacks rebuilt."""


class StepStore:
    """The newest steps of every environment."""

    Config: type[BufferConfig] = BufferConfig
    own: ClassVar[bool] = True
    """Whether its steps belong to this run and are saved with it."""
    scaled_actions: bool = False
    """Whether actions of a Box lie between -1 and 1 instead of the environment's bounds."""

    def __init__(
        self,
        cfg: BufferConfig,
        spaces: Spaces,
        num_envs: int,
        *,
        name: str = "replay",
        rng: np.random.Generator,
        steps: int = AUTO_STEPS,
        free_bytes: int = 1 << 62,
    ) -> None:
        self.cfg, self.spaces, self.num_envs, self.name, self.rng = cfg, spaces, num_envs, name, rng
        self.observations = ObservationColumns(cfg.frames, spaces.observation, f"buffers.{name}")
        floating = np.issubdtype(spaces.action.dtype, np.floating)
        self.columns = {
            **self.observations.columns,
            "action": ColumnSpec(spaces.action.shape or (), np.dtype(np.float32 if floating else np.int64)),
            "reward": ColumnSpec((), np.dtype(np.float32)),
            "flags": ColumnSpec((), np.dtype(np.uint8)),
            "age": ColumnSpec((), np.dtype(np.int32)),
            "ordinal": ColumnSpec((), np.dtype(np.uint32)),
        }
        self.extras: list[str] = []
        self._memory: Tree = None
        self._wished, self._free_bytes = min(steps, AUTO_STEPS), free_bytes
        self._storage: SegmentFile | None = None
        self._folder: Path | None = None
        # after the newest step: the next observations, the ages of their episodes, steps so far
        self._next_obs = zeros(spaces.observation, num_envs)
        self._next_age = np.zeros(num_envs, np.int64)
        self._expected = -1
        self._steps = np.zeros(num_envs, np.int64)

    # ---- columns and size --------------------------------------------------------------------------------------------

    def add_column(self, name: str) -> None:
        """Store one more number per step; `add` takes it by its name."""
        assert self._storage is None, "columns are chosen before the first step"
        self.columns[name] = ColumnSpec((), np.dtype(np.float32))
        self.extras.append(name)

    def store_memory(self, example: Tree) -> None:
        """Store the memory before the first step of every rollout that is added; `example` is a batch of one."""
        assert self._storage is None, "columns are chosen before the first step"
        self._memory = example
        for i, leaf in enumerate(arrays(example)):
            self.columns[f"state{i}"] = ColumnSpec(leaf.shape[1:], leaf.dtype)

    @property
    def _lead(self) -> int:
        """Frames before the newest one that a stack needs."""
        return self.observations.frames - 1

    @property
    def rows(self) -> int:
        """Slots of one environment that can be sampled."""
        if self._storage is not None:
            return self._storage.rows - self._lead
        size = self._wished if self.cfg.size == "auto" else int(self.cfg.size)
        rows = max(self._lead + 4, size // self.num_envs)
        if self.cfg.size == "auto" and self.cfg.storage == "ram":
            cap = self._free_bytes / 2 if self.cfg.max_gb is None else self.cfg.max_gb * 2**30
            while rows > 8 and SegmentFile.bytes_for(self.columns, self.num_envs, rows) > cap:
                rows = max(8, int(rows * 0.9))
        return rows

    @property
    def size(self) -> int:
        """Steps it can hold, over all environments."""
        return self.rows * self.num_envs

    @property
    def knobs(self) -> str:
        """Settings that make it smaller."""
        return f"buffers.{self.name}.size"

    @property
    def bytes(self) -> int:
        """Bytes it takes once the run has begun, on disk or in memory."""
        return SegmentFile.bytes_for(self.columns, self.num_envs, self.rows + self._lead)

    @property
    def allocated(self) -> bool:
        """Whether its memory is taken already."""
        return self._storage is not None

    @property
    def storage(self) -> SegmentFile:
        """The storage, made when it is first needed."""
        if self._storage is None:
            rows = self.rows + self._lead
            self._storage = SegmentFile(self.columns, self.num_envs, rows, self.cfg.storage == "disk", self._folder)
            self._storage.allocate()
        return self._storage

    def __len__(self) -> int:
        """Steps that can be sampled."""
        if self._storage is None:
            return 0
        if self._storage.end.max() <= self.rows:  # no slot was dropped yet
            return int(self._steps.sum())
        before = self.storage.take("ordinal", np.arange(self.num_envs), self._oldest)
        return int((self._steps.astype(np.uint32) - before).sum(dtype=np.int64))

    @property
    def added(self) -> int:
        """Steps that were ever added, dropped ones included."""
        return int(self._steps.sum())

    @property
    def _oldest(self) -> Array:
        return np.maximum(self.storage.end - self.rows, 0)

    # ---- add ---------------------------------------------------------------------------------------------------------

    def add(self, rollout: Rollout, **columns: Array) -> None:
        """Copy a rollout in; an episode that does not continue in this rollout counts as truncated."""
        assert set(columns) == set(self.extras), f"columns {sorted(columns)}, expected {self.extras}"
        self.observations.check(rollout)
        most = (self.storage.ring - self._lead - 2) // 2  # no two slots of one piece may share a place
        for start in range(0, len(rollout.reward), most):
            piece = between(rollout, start, start + most)
            self._add(piece, {name: column[start : start + most] for name, column in columns.items()}, head=start == 0)

    def _add(self, rollout: Rollout, columns: Mapping[str, Array], *, head: bool) -> None:
        steps, ends, done = len(rollout.reward), rollout.ends, rollout.done
        if rollout.broken is not None and ends is not None:  # a lost step has no final observation of its own
            ends, done = ends.where(~rollout.broken[ends.t, ends.b]), done & ~rollout.broken
        gap = rollout.start != self._expected
        start = self._begin_piece(rollout, gap=gap)
        number = start + np.arange(steps + 1)[:, None]  # the last is the slot of the next observation
        if ends is not None:
            number[1:] += np.cumsum(done, 0)
        self.storage.advance(number[steps])
        self._put_steps(rollout, number, self._ages(rollout.first, gap), columns)
        if ends is not None:
            self._put_final(ends.b, number[ends.t, ends.b] + 1, ends.raw_obs)
        if head and self._memory is not None:
            self._put_state(rollout.state, number[0])
        self.storage.end = number[steps]
        self._expected = rollout.start + steps
        tree_map(lambda mine, obs: np.copyto(mine, obs[-1]), self._next_obs, rollout.raw_obs)

    def _begin_piece(self, rollout: Rollout, *, gap: bool) -> Array:
        """Slots of its first steps, after final observations for episodes that were cut before it."""
        fresh, end = rollout.first[0], self.storage.end
        cut = (self._next_age > 0) & (fresh | gap)  # its last observation is the one that was to come next
        if not gap and not cut.any():
            return end
        lead = np.where(gap & ~fresh, self._lead, 0)  # frames before a stack in the middle of an episode
        start = end + cut
        self.storage.advance(start + lead)
        self._put_final(np.flatnonzero(cut), end[cut], tree_index(self._next_obs, cut))
        self._put_lead(np.flatnonzero(lead), start[lead > 0], tree_index(rollout.raw_obs, 0))
        self.storage.end = start + lead
        return self.storage.end

    def _ages(self, first: Array, gap: bool) -> Array:
        """[T + 1, B]: steps since the episode began."""
        begin = np.where(first[0], 0, self._lead if gap else self._next_age)
        t = np.arange(len(first))[:, None]
        if not first[1:].any():
            return begin + t
        start = np.where(first, t, -(1 << 40))
        start[0] = -begin
        return t - np.maximum.accumulate(start, 0)

    def _put_steps(self, rollout: Rollout, number: Array, ages: Array, columns: Mapping[str, Array]) -> None:
        steps, data = len(number) - 1, self.storage.data
        slots = self.storage.slots(np.arange(self.num_envs), number)
        self.observations.write(data, slots, rollout.raw_obs)
        data["age"][slots] = ages
        data["ordinal"][slots] = self._steps + np.arange(steps + 1)[:, None]  # wraps around
        self._blank(slots[steps], 0)
        slots = slots[:steps]
        data["action"][slots] = rollout.action
        data["reward"][slots] = rollout.raw_reward
        data["flags"][slots] = REAL + TERMINATED * rollout.terminated.view(np.uint8)
        if rollout.broken is not None:  # no step: the observation before it is the episode's last
            data["flags"][slots[rollout.broken]] = FINAL
        for name, column in columns.items():
            data[name][slots] = column
        self._steps += steps
        self._next_age = ages[steps]

    def _put_final(self, b: Array, a: Array, obs: Tree) -> None:
        data, slots, before = self.storage.data, self.storage.slots(b, a), self.storage.slots(b, a - 1)
        self._put_unused(slots, obs, data["age"][before] + 1, data["ordinal"][before] + np.uint32(1), FINAL)

    def _put_lead(self, b: Array, a: Array, obs: Tree) -> None:
        for i in range(self._lead):
            slots, back = self.storage.slots(b, a + i), self._lead - i
            self._put_unused(slots, tree_index(obs, b), i, self._steps[b].astype(np.uint32), 0, back)

    def _show_next(self) -> None:
        """Write the next observation into the slot after the newest step, to bootstrap from."""
        slots = self.storage.slots(np.arange(self.num_envs), self.storage.end)
        self._put_unused(slots, self._next_obs, self._next_age, self._steps.astype(np.uint32), 0)

    def _put_unused(self, slots: Array, obs: Tree, age: Array | int, ordinal: Array, flags: int, back: int = 0) -> None:
        """Write slots with an observation and without a step."""
        data = self.storage.data
        self.observations.write(data, slots, obs, back)
        self._blank(slots, flags)
        data["age"][slots] = age
        data["ordinal"][slots] = ordinal

    def _blank(self, slots: Array, flags: int) -> None:
        for name, column in self.storage.data.items():
            if name not in self.observations.columns and name not in ("age", "ordinal"):
                column[slots] = flags if name == "flags" else 0

    def _put_state(self, state: Tree, number: Array) -> None:
        slots = self.storage.slots(np.arange(self.num_envs), number)
        for i, leaf in enumerate(arrays(state)):
            self.storage.data[f"state{i}"][slots] = leaf
        self.storage.data["flags"][slots] |= STATE


def arrays(tree: Tree) -> list[Array]:
    """The leaves of a tree of arrays or tensors, as arrays."""
    return [leaf if isinstance(leaf, np.ndarray) else leaf.detach().cpu().numpy() for leaf in tree_leaves(tree)]
