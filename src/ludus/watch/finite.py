"""Finds tensors with values that are not finite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.learning.learner import Learner


def tensors_of(tree: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Path and tensor of every tensor in nested mappings, tuples and lists."""
    import torch

    if isinstance(tree, torch.Tensor):
        yield name, tree
    elif isinstance(tree, Mapping):
        for key, item in tree.items():
            yield from tensors_of(item, f"{name}.{key}" if name else str(key))
    elif isinstance(tree, tuple | list):
        for i, item in enumerate(tree):
            yield from tensors_of(item, f"{name}.{i}" if name else str(i))


def trouble(tensor: Tensor) -> str | None:
    """`nan in 3 of 256 values`; None if all values are finite."""
    if not tensor.is_floating_point() or bool(tensor.isfinite().all()):
        return None
    bad = tensor[~tensor.isfinite()]
    return f"{'nan' if bool(bad.isnan().any()) else 'infinite'} in {bad.numel():,} of {tensor.numel():,} values"


def first_bad(tree: object) -> tuple[str, str] | None:
    """Name and problem of the first tensor that is not finite."""
    return next(((name, found) for name, tensor in tensors_of(tree) if (found := trouble(tensor))), None)


def bad_part(learner: Learner) -> str | None:
    """Name and problem of the first weight or gradient that is not finite."""
    for kind, flat in (("weight", learner.theta), ("gradient", learner.grad)):
        if trouble(flat):
            name, problem = first_bad(learner.layout.unflatten(flat)) or ("", "")
            return f"{kind} {name}: {problem}"
    return None
