"""Windows of consecutive steps inside one episode, for policies of whole action sequences.

Shapes: L rows of a window, N windows.
"""

from __future__ import annotations

import numpy as np

from ludus.data.buffers.sampling import Buffer, Sample
from ludus.data.buffers.store import FINAL, REAL
from ludus.types import tree_index


def sample_windows(buffer: Buffer, batch: int, length: int, *, before: int = 0) -> Sample:
    """[L, N] steps; row `before` is drawn uniformly from all steps.

    Rows that would lie beyond the episode repeat its first or last step, and `mask` is False there. Columns are `obs`,
    `action`, `reward`, `terminated`, `truncated`, `first`, `mask` and `index`; observations have L rows too.
    """
    b, a, weight = buffer._draw(batch, 1, REAL)
    wanted = a + np.arange(-before, length - before)[:, None]
    begin = np.maximum(a - buffer.storage.take("age", b, a), buffer._oldest[b])
    ahead = a + np.arange(max(length - before, 1) + 1)[:, None]
    over = ((buffer.storage.take("flags", b, ahead) & FINAL) > 0) | (ahead >= buffer.storage.end[b])
    last = np.where(over.any(0), a + over.argmax(0) - 1, a + length)
    rows = np.clip(wanted, begin, last)
    out = buffer._sequences(b, a, np.concatenate([rows, rows[-1:]]), weight, state=False)
    return {**out, "obs": tree_index(out["obs"], slice(-1)), "first": out["first"][:-1], "mask": rows == wanted}
