"""The observation columns of a buffer: one for each leaf of the observation tree, stacks of frames as single frames."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

import gymnasium as gym
import numpy as np

from ludus.data.buffers.segments import ColumnSpec, SegmentFile
from ludus.data.rollout import Rollout
from ludus.errors import ConfigError
from ludus.types import Array, Tree, space_tree, tree_leaves, tree_paths

Padding = Literal["repeat", "zero"]


class ObservationColumns:
    """Writes observations [..., *space] into columns and rebuilds them.

    With `frames` above 1 a bare observation is a stack of frames; in a Dict or Tuple the images are, if their first
    axis can be divided by it.
    """

    def __init__(self, frames: int, space: gym.Space, where: str) -> None:
        spaces = space_tree(space)
        leaves, bare = tree_leaves(spaces), not isinstance(spaces, dict | tuple)
        stacked = [frames > 1 and (bare or _is_stack(leaf, frames)) for leaf in leaves]
        if frames > 1 and not any(stacked):
            problem = f"no image of {space} is a stack of {frames} frames along its first axis"
            raise ConfigError(f"{where}.frames", problem, "use 1 to store observations as they are")
        self.frames = frames
        counts = [frames if stack else 1 for stack in stacked]
        self.names = [f"obs.{quote(path, safe='')}" if path else "obs" for path in tree_paths(spaces)]
        self.codecs = [FrameCodec(count, leaf.shape or (), where) for leaf, count in zip(leaves, counts, strict=True)]
        specs = [ColumnSpec(codec.shape, np.dtype(leaf.dtype)) for leaf, codec in zip(leaves, self.codecs, strict=True)]
        self.columns = dict(zip(self.names, specs, strict=True))

    @property
    def padding(self) -> list[Padding | None]:
        """How each leaf's stacks are filled up at the start of an episode."""
        return [codec.padding for codec in self.codecs]

    @padding.setter
    def padding(self, padding: list[Padding | None]) -> None:
        for codec, value in zip(self.codecs, padding, strict=True):
            codec.padding = value

    def write(self, data: dict[str, Array], slots: Array, obs: Tree, back: int = 0) -> None:
        """Store the frames of `obs` that are `back` steps older than the newest."""
        for name, codec, leaf in zip(self.names, self.codecs, tree_leaves(obs), strict=True):
            data[name][slots] = codec.frame(leaf, back)

    def check(self, rollout: Rollout) -> None:
        """Refuse a rollout whose observations cannot be rebuilt from single frames."""
        ends, first = rollout.ends, rollout.first
        finals = [] if ends is None else tree_leaves(ends.raw_obs)
        for i, (codec, obs) in enumerate(zip(self.codecs, tree_leaves(rollout.raw_obs), strict=True)):
            if codec.count == 1:
                continue
            begun = obs[0][first[0]]
            codec.check(begun, begun, np.ones(len(begun), bool))
            codec.check(_flat(obs[:-1]), _flat(obs[1:]), first[1:].reshape(-1))
            if ends is not None:
                kept = np.ones(len(ends.t), bool) if rollout.broken is None else ~rollout.broken[ends.t, ends.b]
                t, b = ends.t[kept], ends.b[kept]
                codec.check(obs[t, b], finals[i][kept], np.zeros(len(t), bool))

    def read(
        self, storage: SegmentFile, b: Array, a: Array, age: Array, out: Tree, slots: Array, ahead: Array | int = 0
    ) -> None:
        """Fill `out` [N, ...] with the observations of `slots`, which are `ahead` slots after (b, a)."""
        for name, codec, leaf in zip(self.names, self.codecs, tree_leaves(out), strict=True):
            if codec.count == 1:
                storage.data[name].take(slots, 0, leaf, "clip")
            else:
                codec.gather(partial(storage.take, name), b, a + ahead, age + ahead, leaf)


class FrameCodec:
    """Observations that are `count` frames along their first axis, the newest last; for 1 it does nothing."""

    def __init__(self, count: int, shape: tuple[int, ...], where: str) -> None:
        self.count, self.where = count, where
        self.padding: Padding | None = None
        """How the stack is filled up at the start of an episode; known after the first episode whose frame tells."""
        if count > 1 and (not shape or shape[0] % count):
            problem = f"observations of shape {shape} are no stack of {count} frames along their first axis"
            raise ConfigError(f"{where}.frames", problem, "use 1 to store observations as they are")
        self.channels = shape[0] // count if count > 1 else 0
        self.shape = (self.channels, *shape[1:]) if count > 1 else shape

    def frame(self, obs: Array, back: int = 0) -> Array:
        """The frame of [..., C, H, W] that is `back` steps older than the newest one."""
        if self.count == 1:
            return obs
        last = (self.count - back) * self.channels
        part: Any = (..., slice(last - self.channels, last), *[slice(None)] * (len(self.shape) - 1))
        return obs[part]

    def check(self, before: Array, obs: Array, first: Array) -> None:
        """Refuse what is not a stack: `obs` [N, ...] must continue `before`, or begin an episode where `first`."""
        going = ~first
        shifted = before[going][:, self.channels :] == obs[going][:, : -self.channels]
        if not shifted.all():
            self._refuse("an observation does not go on from the one before it")
        if first.any():
            self._check_start(obs[first])

    def _check_start(self, obs: Array) -> None:
        frames = obs.reshape(-1, self.count, *self.shape)
        found: dict[Padding, bool] = {"repeat": (frames == frames[:, -1:]).all(), "zero": not frames[:, :-1].any()}
        fits = [padding for padding, holds in found.items() if holds]
        if self.padding is None and len(fits) == 1:
            self.padding = fits[0]
        if not fits or (self.padding is not None and self.padding not in fits):
            self._refuse("an episode begins neither with one frame repeated nor with zeros")

    def _refuse(self, problem: str) -> None:
        raise ConfigError(f"{self.where}.frames", f"{problem}, so stacks cannot be rebuilt", "set it to 1")

    def gather(self, take: Callable[[Array, Array], Array], b: Array, a: Array, age: Array, out: Array) -> None:
        """Fill `out` [N, C, H, W] with the stacks at slots `a`, never reaching into an earlier episode."""
        for back in range(self.count):
            missing = age < back
            frame = take(b, a - np.minimum(age, back))
            if self.padding == "zero" and missing.any():
                frame[missing] = 0
            self.frame(out, back)[...] = frame


def _flat(array: Array) -> Array:
    """[T, B, ...] as [T * B, ...]."""
    return array.reshape(-1, *array.shape[2:])


def _is_stack(space: gym.Space, frames: int) -> bool:
    shape = space.shape or ()
    return len(shape) == 3 and space.dtype == np.uint8 and shape[0] % frames == 0
