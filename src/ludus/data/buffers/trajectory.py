"""Sequences from single episodes, which never cross an episode's end."""

from __future__ import annotations

import numpy as np

from ludus.data.buffers.sampling import Buffer, Sample
from ludus.data.buffers.store import FINAL, REAL, STATE
from ludus.registry import BUFFERS
from ludus.types import Array


@BUFFERS.register("trajectory")
class Trajectory(Buffer):
    """Sequences stay within one episode; short ones are padded with rows where `mask` is False."""

    fills_up = True

    def sample_sequences(self, batch: int, length: int, *, state: bool = False) -> Sample:
        """[L, N] steps of one episode each; a start too close to the end is moved back if the episode has room."""
        b, a, weight = self._draw(batch, 1, REAL | (STATE if state else 0))
        if not state:  # a stored memory belongs to the drawn step
            a = self._moved_back(b, a, length)
        number = a + np.arange(length + 1)[:, None]
        over = self._over(b, number)
        last = np.where(over.any(0), over.argmax(0) - 1, length)  # the episode's newest slot, which pads the sequence
        out = self._sequences(b, a, np.minimum(number, a + last), weight, state=state)
        out["first"] |= np.arange(length + 1)[:, None] > last
        return out

    def _over(self, b: Array, number: Array) -> Array:
        """Slots after the episode: after a final observation, or after the newest slot."""
        final = (self.storage.take("flags", b, number) & FINAL) > 0
        after_final = np.zeros_like(final)
        after_final[1:] = np.maximum.accumulate(final, 0)[:-1]
        return after_final | (number > self.storage.end[b])

    def _moved_back(self, b: Array, a: Array, length: int) -> Array:
        """Starts moved back so that a whole sequence lies in the episode, if it is long enough and still stored."""
        over = self._over(b, a + np.arange(length + 1)[:, None])
        missing = over.sum(0)
        room = np.minimum(self.storage.take("age", b, a), a - self._oldest[b])
        back = a - np.minimum(missing, room)
        return np.where(self.storage.take("flags", b, back) & REAL, back, a)

    def can_sample_sequences(self, batch: int, length: int, *, state: bool = False) -> bool:
        """Whether anything is stored: short episodes are padded."""
        return super().can_sample_sequences(1, 1, state=state)

    def fits(self, length: int) -> bool:
        """Always true: short episodes are padded."""
        return True
