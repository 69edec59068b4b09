"""Batches of an update: named columns [T, B, ...] (`state`: [B, ...]), each a tensor or a tree of them."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ludus.types import Tree, tree_leaves, tree_map

Batch = dict[str, Tree]


def leaves_of(batch: Batch) -> list[Tensor]:
    """The tensors of a batch, column by column."""
    return [leaf for tree in batch.values() for leaf in tree_leaves(tree)]


def refill(batch: Batch, leaves: Iterator[Tensor]) -> Batch:
    """A batch of the same structure with the next tensors of `leaves`."""
    return {name: tree_map(lambda _: next(leaves), tree) for name, tree in batch.items()}


def parts_of(batch: Batch, count: int) -> list[tuple[slice, Batch]]:
    """A batch cut along B into at most `count` parts, with the slice of B that each holds.

    Parts are views. A column of one dimension has no B and stays whole.
    """
    columns = {name: tree for name, tree in batch.items() if name != "state"}
    size = next(leaf.shape[1] for leaf in leaves_of(columns) if leaf.ndim > 1)
    count = min(count, size)
    bounds = [part * (size // count) + min(part, size % count) for part in range(count + 1)]
    return [(where, _cut(batch, where)) for where in map(slice, bounds[:-1], bounds[1:])]


def _cut(batch: Batch, where: slice) -> Batch:
    def column(leaf: Tensor) -> Tensor:
        return leaf[:, where] if leaf.ndim > 1 else leaf

    def state(leaf: Tensor) -> Tensor:
        return leaf[where]

    return {name: tree_map(state if name == "state" else column, tree) for name, tree in batch.items()}
