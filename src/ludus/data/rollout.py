"""Time-major experience: T steps of B environments, as every on-policy algorithm receives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ludus.types import Array, Tree, tree_fill, tree_index, tree_leaves, tree_map


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The N episodes that ended in a rollout, with their true last observations, in the order of time."""

    t: Array
    """[N] step at which the episode ended."""
    b: Array
    """[N] environment."""
    obs: Tree
    """[N, ...] last observation, normalised if the config says so."""
    raw_obs: Tree
    """[N, ...] the same as the environment returned it."""
    state: Tree
    """[N, ...] memory with which the value of `obs` is to be computed."""
    bootstrap: Array
    """bool [N]: truncated, neither terminated nor broken, so that the return goes on with the value of `obs`."""

    def where(self, chosen: Array, *, earlier: int = 0) -> Ends | None:
        """Some of them, with `t` moved by `earlier` steps; None if none are chosen."""
        if not chosen.any():
            return None
        if chosen.all() and not earlier:
            return self
        rows = np.flatnonzero(chosen)
        taken = {each.name: tree_index(getattr(self, each.name), rows) for each in fields(self)}
        return Ends(**{**taken, "t": taken["t"] - earlier})


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Views into the collector's storage: valid until the next `collect`."""

    obs: Tree
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
    ends: Ends | None
    """None if no episode ended."""
    raw_obs: Tree
    """[T + 1, B, ...] as the environments returned them, for buffers."""
    raw_reward: Array
    """[T, B] as the environments and their wrappers returned them, for buffers."""
    start: int
    """Steps collected before this rollout: a buffer that missed some of them knows that episodes were cut."""
    extras: Mapping[str, Array] = field(default_factory=dict)
    """[T, B, ...]: further columns of the behaviour, beside the action."""
    broken: Array | None = None
    """bool [T, B]: rows whose action was lost with its worker, which are no transitions; None: there are none.

    Such a row reads truncated, reward 0. Algorithms skip it, and the step before it leads to its observation.
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
        """bool [T, B]: episodes that ended, terminated or truncated."""
        return self.terminated | self.truncated

    @cached_property
    def finals(self) -> Ends | None:
        """The ends of truncated episodes: their returns bootstrap from the value of the true last observation."""
        return None if self.ends is None else self.ends.where(self.ends.bootstrap)


def minibatches(
    columns: dict[str, Tree], state: Tree, count: int, rng: np.random.Generator, *, sequences: bool
) -> Iterator[dict[str, Tree]]:
    """Shuffled minibatches of columns [T, B, ...], always time-major.

    `sequences` keeps whole sequences of some environments together with their initial state, at least one in each of
    at most `count`; otherwise single steps are shuffled into [1, T * B / count]. Sizes differ by at most one where
    `count` does not divide.
    """
    column = tree_leaves(next(iter(columns.values())))[0]
    (steps, envs), device = column.shape[:2], column.device
    if sequences:
        for chosen in np.array_split(rng.permutation(envs), min(count, envs)):
            index = torch.from_numpy(chosen).to(device)
            part = {name: take(column, index) for name, column in columns.items()}
            yield {**part, "state": tree_index(state, index)}
        return
    flat = columns if steps == 1 else single_steps(columns)
    if count == 1:  # one batch with everything: its order changes nothing
        yield {**flat, "state": ()}
        return
    order = torch.from_numpy(rng.permutation(steps * envs)).to(device)
    flat = {name: take(column, order) for name, column in flat.items()}
    sizes = np.diff(np.linspace(0, steps * envs, count + 1).astype(int)).tolist()
    for leaves in zip(*[leaf.split(sizes, 1) for leaf in tree_leaves(flat)], strict=True):
        yield {**tree_fill(flat, leaves), "state": ()}


def single_steps(columns: dict[str, Tree]) -> dict[str, Tree]:
    """Columns [T, B, ...] as one row of steps [1, T * B, ...]."""
    return tree_map(lambda column: column.reshape(1, column.shape[0] * column.shape[1], *column.shape[2:]), columns)


def take(column: Tree, index: Tensor) -> Tree:
    """`column[:, index]` in one pass over whole rows; images in channels-last memory stay in it."""

    def taken(leaf: Tensor) -> Tensor:
        if leaf.ndim == 5 and not leaf.is_contiguous():
            return leaf.movedim(2, -1).index_select(1, index).movedim(-1, 2)
        return leaf.index_select(1, index)

    return tree_map(taken, column)
