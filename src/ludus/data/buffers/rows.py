"""Stored sequences as a world model reads them: each row has an observation and what led to it.

An episode's true last observation is a row of its own, so its reward and its end can be learned.
Shapes: T rows, N sequences.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ludus.data.buffers.sampling import Buffer, Sample
from ludus.types import Array, Spaces, zeros


def sample_rows(buffer: Buffer, batch: int, length: int) -> Sample:
    """`batch` sequences of `length` rows, which may go on over the ends of episodes.

    `action` and `reward` are those of the step that led to the row; `terminal`: it terminated the episode; `last`: it
    ended the episode, terminated or truncated. `known` is False where that step lies before the sequence.
    """
    return rows_of(buffer.sample_sequences(batch, length - 1))


def all_rows(buffer: Buffer, batch: int, length: int) -> Iterator[Sample]:
    """Everything that is stored, as up to `batch` sequences of `length` rows at a time."""
    b, a = buffer.stretches(length - 1)
    for start in range(0, len(b), batch):
        chosen = slice(start, start + batch)
        yield rows_of(buffer.sequences_from(b[chosen], a[chosen], length - 1))


def blank_steps(spaces: Spaces, batch: int, length: int) -> Sample:
    """Steps in which nothing happens, as `Buffer.sample_sequences` gives them."""
    wide = np.float32 if np.issubdtype(spaces.action.dtype, np.floating) else np.int64
    flags = {name: np.zeros((length, batch), bool) for name in ("terminated", "truncated")}
    return {
        "obs": zeros(spaces.observation, length + 1, batch),
        "action": np.zeros((length, batch, *(spaces.action.shape or ())), wide),
        "reward": np.zeros((length, batch), np.float32),
        "first": np.zeros((length + 1, batch), bool),
        "mask": np.ones((length, batch), bool),
        "weight": np.ones(batch, np.float32),
        **flags,
    }


def rows_of(steps: Sample) -> Sample:
    """Sequences of T - 1 steps as T rows."""
    first, real, terminated = steps["first"].copy(), steps["mask"], steps["terminated"]
    last = led(terminated | steps["truncated"])
    last[:-1] |= first[1:]  # also an episode whose only step was lost with its worker
    known = np.ones_like(first)
    known[0] = first[0]
    first[0] = True  # no memory of what was before
    return {
        "obs": steps["obs"],
        "action": led(steps["action"] * _wide(real, steps["action"])),
        "reward": led(steps["reward"] * real),
        "first": first,
        "terminal": led(terminated),
        "last": last,
        "known": known,
    }


def led(column_TN: Array) -> Array:
    """A column of steps, moved to the rows that they led to."""
    return np.concatenate([np.zeros_like(column_TN[:1]), column_TN])


def _wide(mask_TN: Array, like: Array) -> Array:
    return mask_TN.reshape(*mask_TN.shape, *[1] * (like.ndim - 2))
