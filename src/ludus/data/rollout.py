"""Time-major experience: T steps of B environments, as every on-policy algorithm receives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ludus.types import Array, Tree, tree_map


@dataclass(frozen=True, kw_only=True)
class Finals:
    """True last observations of truncated episodes, sparse, for bootstrapping."""

    t: Array
    b: Array
    obs: Array
    """[N, ...]"""
    state: Tree
    """Memory with which the value of `obs` is to be taken, [N, ...]."""


@dataclass(frozen=True, kw_only=True)
class Raw:
    """What buffers store: nothing normalised, and the last observation of every episode that ended."""

    obs: Array
    """[T + 1, B, ...] of the space's own dtype."""
    reward: Array
    t: Array
    b: Array
    final_obs: Array
    """[N, ...] for the episodes that ended at (t, b)."""
    start: int
    """Steps collected before: a buffer that misses some knows that episodes were cut."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Views into the collector's storage: valid until the next `collect`."""

    obs: Array
    """[T + 1, B, ...]; the last row is what the policy will see next."""
    action: Array
    """[T, B, ...], as drawn from the policy, before clipping."""
    reward: Array
    """[T, B] float32, normalised if the config says so."""
    terminated: Array
    truncated: Array
    first: Array
    """[T + 1, B]: step t begins an episode."""
    state: Tree
    """Memory before step 0, [B, ...]."""
    last_state: Tree
    """Memory after step T - 1, [B, ...]."""
    finals: Finals | None
    raw: Raw | None = None
    """Only when the collector was asked to `keep_raw`."""
    extras: Mapping[str, Array] = field(default_factory=dict)
    """[T, B, ...]: what the behaviour kept of every step beside the action."""
    broken: Array | None = None
    """[T, B]: rows whose action was lost with its worker, which are no transitions; None: there are none.

    Such a row reads truncated, reward 0. Nobody learns from it, and the step before it goes on in its observation.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """(T, B)"""
        return self.reward.shape

    @property
    def env_steps(self) -> int:
        """Environment steps in this rollout."""
        return int(self.reward.size)

    @property
    def done(self) -> Array:
        """Episodes that ended, for whatever reason."""
        return self.terminated | self.truncated

    @property
    def weight(self) -> Array | None:
        """[T, B] float32 of mean 1 that leaves broken rows out; None: all count alike."""
        if self.broken is None:
            return None
        real = (~self.broken).astype(np.float32)
        return real * np.float32(real.size / max(real.sum(), 1.0))

    def credited(self, value_TB: Array) -> tuple[Array, Array]:
        """(reward, terminated) as estimators of returns read them: from a broken row nothing follows.

        It pays exactly what its state was thought to be worth and ends there, so that its error is 0.
        """
        if self.broken is None:
            return self.reward, self.terminated
        return np.where(self.broken, value_TB, self.reward), self.terminated | self.broken

    def between(self, start: int, end: int) -> Rollout:
        """Its steps from `start` up to `end`, as buffers read them: memory and `finals` stay those of the whole."""
        assert self.raw is not None
        if start == 0 and end >= len(self.reward):
            return self
        here = (self.raw.t >= start) & (self.raw.t < end)
        raw = Raw(
            obs=self.raw.obs[start : end + 1],
            reward=self.raw.reward[start:end],
            t=self.raw.t[here] - start,
            b=self.raw.b[here],
            final_obs=self.raw.final_obs[here],
            start=self.raw.start + start,
        )
        steps = {name: getattr(self, name)[start:end] for name in ("action", "reward", "terminated", "truncated")}
        steps["broken"] = None if self.broken is None else self.broken[start:end]
        return replace(self, obs=self.obs[start : end + 1], first=self.first[start : end + 1], raw=raw, **steps)


def minibatches(
    columns: dict[str, Tensor], state: Tree, count: int, rng: np.random.Generator, *, sequences: bool
) -> Iterator[dict[str, Tree]]:
    """Shuffled minibatches of columns [T, B, ...], always time-major.

    `sequences` keeps whole sequences of some environments together with their initial state, at least one in each of
    at most `count`; otherwise single steps are shuffled into [1, T * B / count]. Sizes differ by at most one where
    `count` does not divide.
    """
    column = next(iter(columns.values()))
    (steps, envs), device = column.shape[:2], column.device
    if sequences:
        for chosen in np.array_split(rng.permutation(envs), min(count, envs)):
            index = torch.from_numpy(chosen).to(device)
            part = {name: take(column, index) for name, column in columns.items()}
            yield {**part, "state": tree_map(lambda leaf, i=index: leaf[i], state)}
        return
    flat = {name: column.reshape(1, steps * envs, *column.shape[2:]) for name, column in columns.items()}
    if count == 1:  # one batch with everything: its order changes nothing
        yield {**flat, "state": ()}
        return
    order = torch.from_numpy(rng.permutation(steps * envs)).to(device)
    flat = {name: take(column, order) for name, column in flat.items()}
    bounds = np.linspace(0, steps * envs, count + 1).astype(int)
    for start, end in pairwise(bounds):
        yield {**{name: column[:, start:end] for name, column in flat.items()}, "state": ()}


def take(column: Tensor, index: Tensor) -> Tensor:
    """`column[:, index]` in one pass over whole rows; images in channels-last memory stay in it."""
    if column.ndim == 5 and not column.is_contiguous():
        return column.movedim(2, -1).index_select(1, index).movedim(-1, 2)
    return column.index_select(1, index)
