"""Steps of several environments, stored as they were: what every buffer is built on.

Each environment's steps lie one after the other. An episode's end is followed by one more slot with its true final
observation, so that what comes after a step is always in the next slot: n-step returns, sequences and stacks of frames
need no exceptions. Observations and rewards are stored raw. A slot is (b, a): number `a` of environment `b`.

Reading order: BufferConfig -> add -> save and load. Shapes: T time, B environments.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from ludus import files
from ludus.config.model import Model
from ludus.data.buffers.frames import Frames
from ludus.data.buffers.segments import Arena, Column, columns_of
from ludus.data.buffers.spaces import describe_space
from ludus.data.rollout import Raw, Rollout
from ludus.errors import DataError, ResourceError
from ludus.types import Array, Spaces, Tree, tree_leaves

REAL, TERMINATED, FINAL, STATE = 1, 2, 4, 8
"""A step with an action; it ended the episode; a final observation; the memory before it is stored."""
INDEX = "index.json"
AUTO_STEPS = 1_000_000
"""Most steps that `size: auto` asks for."""


class BufferConfig(Model):
    """Steps that stay to be learned from again."""

    size: PositiveInt | Literal["auto"] = 100_000
    """Steps it holds over all environments, the final observation of an episode counted as one; `auto` is as many as
    the run will take, up to a million and what `max_gb` allows."""
    max_gb: float | None = Field(default=None, gt=0)
    """Most memory `auto` takes; the default is half of what is free."""
    storage: Literal["ram", "disk"] = "ram"
    """`disk` maps files in the run's folder into memory."""
    frames: PositiveInt = 1
    """Observations are stacks of so many frames along their first axis: single frames are stored, stacks rebuilt."""


class Steps:
    """The newest steps of every environment, and how to save them."""

    Config: type[BufferConfig] = BufferConfig
    own: ClassVar[bool] = True
    """Whether its steps are this run's, to be saved with it."""

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
        self.frames = Frames(cfg.frames, spaces.observation.shape or (), f"buffers.{name}")
        floating = np.issubdtype(spaces.action.dtype, np.floating)
        self.columns = {
            "obs": Column(self.frames.shape, np.dtype(spaces.observation.dtype)),
            "action": Column(spaces.action.shape or (), np.dtype(np.float32 if floating else np.int64)),
            "reward": Column((), np.dtype(np.float32)),
            "flags": Column((), np.dtype(np.uint8)),
            "age": Column((), np.dtype(np.int32)),
            "ordinal": Column((), np.dtype(np.uint32)),
        }
        self.extras: list[str] = []
        self._state_tree: Tree = None
        self._wished, self._free_bytes = min(steps, AUTO_STEPS), free_bytes
        self._arena: Arena | None = None
        self._folder: Path | None = None
        # where the stream of steps stands: observations to come, age of their episodes, steps so far
        self._next_obs = np.zeros((num_envs, *(spaces.observation.shape or ())), spaces.observation.dtype)
        self._next_age = np.zeros(num_envs, np.int64)
        self._expected = -1
        self._steps = np.zeros(num_envs, np.int64)

    # ---- what is kept ------------------------------------------------------------------------------------------------

    def keep(self, name: str, shape: tuple[int, ...] = (), dtype: Any = np.float32) -> None:
        """One more column per step, given to `add` by its name."""
        assert self._arena is None, "columns are chosen before the first step"
        self.columns[name] = Column(shape, np.dtype(dtype))
        self.extras.append(name)

    def keep_state(self, example: Tree) -> None:
        """Also keep the memory before the first step of every rollout that is added; `example` is a batch of one."""
        assert self._arena is None, "columns are chosen before the first step"
        self._state_tree = example
        for i, leaf in enumerate(leaves_of(example)):
            self.columns[f"state{i}"] = Column(leaf.shape[1:], leaf.dtype)

    @property
    def rows(self) -> int:
        """Slots of one environment that can be sampled."""
        if self._arena is not None:
            return self._arena.rows - (self.frames.count - 1)
        size = self._wished if self.cfg.size == "auto" else int(self.cfg.size)
        rows = max(self.frames.count + 3, size // self.num_envs)
        if self.cfg.size == "auto" and self.cfg.storage == "ram":
            cap = self._free_bytes / 2 if self.cfg.max_gb is None else self.cfg.max_gb * 2**30
            while rows > 8 and Arena.bytes_for(self.columns, self.num_envs, rows) > cap:
                rows = max(8, int(rows * 0.9))
        return rows

    @property
    def size(self) -> int:
        """Steps it can hold, over all environments."""
        return self.rows * self.num_envs

    @property
    def bytes(self) -> int:
        """Bytes it takes once the run has begun, on disk or in memory."""
        return Arena.bytes_for(self.columns, self.num_envs, self.rows + self.frames.count - 1)

    @property
    def allocated(self) -> bool:
        """Whether its memory is taken already."""
        return self._arena is not None

    @property
    def arena(self) -> Arena:
        """The storage, made when it is first needed."""
        if self._arena is None:
            self._arena = Arena(self.columns, self.num_envs, self.rows + self.frames.count - 1, self.cfg.storage)
            self._arena.folder = self._folder
            self._arena.allocate()
        return self._arena

    def __len__(self) -> int:
        """Steps that can be sampled."""
        if self._arena is None:
            return 0
        if self._arena.end.max() <= self.rows:  # nothing was given up yet
            return int(self._steps.sum())
        before = self._take("ordinal", np.arange(self.num_envs), self._oldest)
        alive = (self._steps.astype(np.uint32) - before).astype(np.int64)
        return int(alive.sum())

    @property
    def added(self) -> int:
        """Steps that were ever added, those that have left again included."""
        return int(self._steps.sum())

    @property
    def _oldest(self) -> Array:
        return np.maximum(self.arena.end - self.rows, 0)

    # ---- add ---------------------------------------------------------------------------------------------------------

    def add(self, rollout: Rollout, **columns: Array) -> None:
        """Copy a rollout in; an episode that the environments were taken away from counts as truncated."""
        assert set(columns) == set(self.extras), f"columns {sorted(columns)}, expected {self.extras}"
        assert rollout.raw is not None, "the collector keeps no raw observations"
        self._check_frames(rollout, rollout.raw)
        most = (self.arena.ring - self.frames.count - 1) // 2  # no two slots of one piece may share a place
        for start in range(0, len(rollout.reward), most):
            piece = rollout.between(start, start + most)
            self._add(piece, {name: column[start : start + most] for name, column in columns.items()}, head=start == 0)

    def _add(self, rollout: Rollout, columns: Mapping[str, Array], *, head: bool) -> None:
        raw, arena, steps = rollout.raw, self.arena, len(rollout.reward)
        assert raw is not None
        gap = raw.start != self._expected
        start = self._begin_piece(rollout, raw, gap=gap)
        number = start + np.arange(steps + 1)[:, None]  # the last is the slot of the observation to come
        if len(raw.t):
            number[1:] += np.cumsum(rollout.done, 0)
        arena.advance(number[steps])
        self._put_steps(rollout, raw, number, self._ages(rollout.first, gap), columns)
        if len(raw.t):
            self._put_final(raw.b, number[raw.t, raw.b] + 1, raw.final_obs)
        if head:
            self._put_state(rollout.state, number[0])
        self.arena.end = number[steps]
        self._expected = raw.start + steps
        self._next_obs[...] = raw.obs[-1]

    def _begin_piece(self, rollout: Rollout, raw: Raw, *, gap: bool) -> Array:
        """Where its first steps go, after the ends of episodes that were broken off."""
        fresh, end = rollout.first[0], self.arena.end
        cut = (self._next_age > 0) & (fresh | gap)  # its last observation is the one that was to come next
        if not gap and not cut.any():
            return end
        lead = np.where(gap & ~fresh, self.frames.count - 1, 0)  # frames before a stack in the middle of an episode
        start = end + cut
        self.arena.advance(start + lead)
        self._put_final(np.flatnonzero(cut), end[cut], self._next_obs[cut])
        self._put_lead(np.flatnonzero(lead), start[lead > 0], raw.obs[0])
        self.arena.end = start + lead
        return self.arena.end

    def _check_frames(self, rollout: Rollout, raw: Raw) -> None:
        """Everything that will be rebuilt from single frames must be made of them."""
        if self.frames.count > 1:
            first, wide = rollout.first, raw.obs[0][rollout.first[0]]
            self.frames.check(wide, wide, np.ones(len(wide), bool))
            self.frames.check(_flat(raw.obs[:-1]), _flat(raw.obs[1:]), first[1:].reshape(-1))
            kept = np.ones(len(raw.t), bool) if rollout.broken is None else ~rollout.broken[raw.t, raw.b]
            t, b = raw.t[kept], raw.b[kept]
            self.frames.check(raw.obs[t, b], raw.final_obs[kept], np.zeros(len(t), bool))

    def _ages(self, first: Array, gap: bool) -> Array:
        """[T + 1, B]: steps since the episode began."""
        begin = np.where(first[0], 0, self.frames.count - 1 if gap else self._next_age)
        t = np.arange(len(first))[:, None]
        if not first[1:].any():
            return begin + t
        start = np.where(first, t, -(1 << 40))
        start[0] = -begin
        return t - np.maximum.accumulate(start, 0)

    def _put_steps(self, rollout: Rollout, raw: Raw, number: Array, ages: Array, columns: Mapping[str, Array]) -> None:
        steps, data = len(number) - 1, self.arena.data
        slots = self.arena.slots(np.arange(self.num_envs), number)
        data["obs"][slots] = self.frames.newest(raw.obs)
        data["age"][slots] = ages
        data["ordinal"][slots] = self._steps + np.arange(steps + 1)[:, None]  # wraps around
        self._blank(slots[steps], 0)
        slots = slots[:steps]
        data["action"][slots] = rollout.action
        data["reward"][slots] = raw.reward
        data["flags"][slots] = REAL + TERMINATED * rollout.terminated.view(np.uint8)
        if rollout.broken is not None:  # no step: the observation before it is the episode's last
            data["flags"][slots[rollout.broken]] = FINAL
        for name, column in columns.items():
            data[name][slots] = column
        self._steps += steps
        self._next_age = ages[steps]

    def _put_final(self, b: Array, a: Array, obs: Array) -> None:
        data, slots, before = self.arena.data, self.arena.slots(b, a), self.arena.slots(b, a - 1)
        data["obs"][slots] = self.frames.newest(obs)
        self._blank(slots, FINAL)
        data["age"][slots] = data["age"][before] + 1
        data["ordinal"][slots] = data["ordinal"][before] + np.uint32(1)

    def _put_lead(self, b: Array, a: Array, obs: Array) -> None:
        data = self.arena.data
        for i in range(self.frames.count - 1):
            slots = self.arena.slots(b, a + i)
            data["obs"][slots] = self.frames.older(obs[b], self.frames.count - 1 - i)
            self._blank(slots, 0)
            data["age"][slots] = i
            data["ordinal"][slots] = self._steps[b].astype(np.uint32)

    def _blank(self, slots: Array, flags: int) -> None:
        """A slot without a step."""
        data = self.arena.data
        for name, column in data.items():
            if name not in ("obs", "age", "ordinal"):
                column[slots] = 0
        if flags:
            data["flags"][slots] = flags

    def _put_state(self, state: Tree, number: Array) -> None:
        if self._state_tree is None:
            return
        slots = self.arena.slots(np.arange(self.num_envs), number)
        for i, leaf in enumerate(leaves_of(state)):
            self.arena.data[f"state{i}"][slots] = leaf
        self.arena.data["flags"][slots] |= STATE

    def _show_next(self) -> None:
        """The slot after the newest step holds the observation to come, so that it is there to bootstrap from."""
        data, slots = self.arena.data, self.arena.slots(np.arange(self.num_envs), self.arena.end)
        data["obs"][slots] = self.frames.newest(self._next_obs)
        self._blank(slots, 0)
        data["age"][slots] = self._next_age
        data["ordinal"][slots] = self._steps.astype(np.uint32)

    def _take(self, name: str, b: Array, a: Array, out: Array | None = None) -> Array:
        return self.arena.data[name].take(self.arena.slots(b, a), 0, out, "clip")

    # ---- state -------------------------------------------------------------------------------------------------------

    def attach(self, folder: Path) -> None:
        """Where the steps are saved, or lie if they are kept on disk; before the first step."""
        self._folder = folder
        if self._arena is not None:
            self._arena.folder = folder

    def save(self, tag: str, keep: tuple[str, ...]) -> dict[str, Any]:
        """Everything, for the checkpoint `tag`; steps go to the buffer's own files, only those that are new."""
        if self._folder is None:
            contents = {"data": self.arena.data, "end": self.arena.end, "rows": self.arena.rows}
        else:
            contents = self.arena.save(tag, keep)
            self._write_index(contents)
        return {
            "contents": contents,
            "next": {
                "obs": self._next_obs.copy(),
                "age": self._next_age.copy(),
                "step": self._expected,
                "steps": self._steps.copy(),
            },
            "frames": self.frames.state_dict(),
            "rng": dict(self.rng.bit_generator.state),
        }

    def _write_index(self, contents: dict[str, Any]) -> None:
        """The same in a file beside the steps: with it they can be read without the checkpoint."""
        assert self._folder is not None
        after = {"obs": self._next_obs.tobytes().hex(), "age": self._next_age.tolist(), "steps": self._steps.tolist()}
        index = {"format": "ludus-buffer", "version": 1, "num_envs": self.num_envs, "frames": self.frames.count}
        index |= {"contents": contents, "next": after, "padding": self.frames.padding}
        index |= {"observation": describe_space(self.spaces.observation), "action": describe_space(self.spaces.action)}
        try:
            files.write_json(self._folder / INDEX, index)
        except OSError as error:
            raise ResourceError(
                str(self._folder / INDEX), f"cannot be written: {error.strerror}", "free space"
            ) from None

    def load(self, state: Mapping[str, Any], source: Path | None) -> None:
        """Go on exactly where the state was taken; `source` is the folder with the steps it refers to."""
        contents = state["contents"]
        self._check_fits(contents)
        self._arena = Arena(self.columns, self.num_envs, int(contents["rows"]), self.cfg.storage)
        self._arena.folder = self._folder
        if self.cfg.storage == "ram" or source != self._folder:
            self._arena.allocate()
        if "data" in contents:
            self._arena.end = np.array(contents["end"])
            for name, column in contents["data"].items():
                self._arena.data[name][...] = column
        else:
            assert source is not None
            self._arena.load(contents, source)
        after = state["next"]
        self._next_obs[...], self._next_age = after["obs"], np.array(after["age"])
        self._expected, self._steps = int(after["step"]), np.array(after["steps"])
        self.frames.load_state_dict(state["frames"])
        self.rng.bit_generator.state = state["rng"]
        self._show_next()

    def _check_fits(self, contents: Mapping[str, Any]) -> None:
        if "columns" in contents and columns_of(contents) != self.columns:
            problem = "the saved steps have other columns than this config asks for"
            raise DataError(f"buffers.{self.name}", problem, "restore config.yaml")
        wanted = self.rows + self.frames.count - 1
        if self.cfg.size != "auto" and int(contents["rows"]) != wanted:
            problem = f"{contents['rows']} steps per environment were saved, the config asks for {wanted}"
            raise DataError(f"buffers.{self.name}.size", problem, "restore config.yaml")

    def start_over(self) -> None:
        """Forget every step."""
        self._arena, self._expected = None, -1
        self._next_age, self._steps = np.zeros((2, self.num_envs), np.int64)


def leaves_of(tree: Tree) -> list[Array]:
    return [leaf if isinstance(leaf, np.ndarray) else leaf.detach().cpu().numpy() for leaf in tree_leaves(tree)]


def _flat(array: Array) -> Array:
    """[T, B, ...] as [T * B, ...]."""
    return array.reshape(-1, *array.shape[2:])
