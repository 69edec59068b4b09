"""Every stored step of a buffer once, for statistics. Shapes: N steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ludus.data.buffers.sampling import Buffer, Sample
from ludus.data.buffers.store import REAL
from ludus.types import tree_index

PIECE = 4_096
"""Steps that are read at once."""


def all_steps(buffer: Buffer) -> Iterator[Sample]:
    """`obs` and `action` [1, N] of every step, piece by piece; valid until the next piece."""
    b, a = buffer._between(buffer._oldest, buffer.storage.end)
    real = buffer._has(b, a, REAL)
    b, a = b[real], a[real]
    for begin in range(0, len(b), PIECE):
        some = slice(begin, begin + PIECE)
        found = buffer._sequences(b[some], a[some], a[some] + np.arange(2)[:, None], 1.0, state=False)
        yield {"obs": tree_index(found["obs"], slice(1)), "action": found["action"]}
