"""Update functions that take several steps yield after each, so that parts of a batch can wait for each other."""

from __future__ import annotations

from collections.abc import Generator

from torch import Tensor

Results = dict[str, Tensor] | tuple[dict[str, Tensor], dict[str, Tensor]]
"""Metrics, or (metrics, outputs)."""
Steps = Generator[None, None, Results]
"""What a function returns that yields after each of its steps (`learning/accumulate.py`)."""
Running = Results | Steps


def finished(run: Running) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What an update function returns in the end: (metrics, outputs)."""
    while isinstance(run, Generator):
        try:
            next(run)
        except StopIteration as end:
            run = end.value
    metrics, outputs = run if isinstance(run, tuple) else (run, {})
    for what, found in (("metrics", metrics), ("outputs", outputs)):
        if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
            raise TypeError(
                f"an update returns metrics, or (metrics, outputs), as dicts of tensors; its {what}: {found!r}"
            )
    return metrics, outputs
