"""The steps of any buffer as episodes again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ludus.data.buffers.sampling import Buffer
from ludus.data.buffers.store import REAL, TERMINATED
from ludus.data.datasets.statistics import Episode
from ludus.types import zeros


def episodes_of(buffer: Buffer) -> Iterator[Episode]:
    """Every episode, or what is left of it, one environment after the other; actions are as they were stored."""
    oldest, storage = buffer._oldest, buffer.storage
    for b in range(buffer.num_envs):
        slots = np.arange(oldest[b], storage.end[b] + 1)
        real = (storage.take("flags", np.full_like(slots, b), slots) & REAL) > 0
        real[-1] = False  # the slot of the next observation
        edges = np.flatnonzero(np.diff(np.concatenate([[False], real]).astype(np.int8)))
        for start, end in zip(slots[edges[::2]], slots[edges[1::2]], strict=True):
            yield _episode(buffer, b, np.arange(start, end + 1))


def _episode(buffer: Buffer, b: int, number: np.ndarray) -> Episode:
    """The steps in all slots but the last, which has the observation after them."""
    storage, where = buffer.storage, np.full_like(number, b)
    obs, ages = zeros(buffer.spaces.observation, len(number)), storage.take("age", where, number)
    buffer.observations.read(storage, where, number, ages, obs, storage.slots(where, number))
    action, reward, flags = (storage.take(name, where[:-1], number[:-1]) for name in ("action", "reward", "flags"))
    return Episode(obs, action, reward, bool(flags[-1] & TERMINATED))
