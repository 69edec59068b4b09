"""Newest sequences first: each new stretch of steps is drawn once soon after it was collected, then uniformly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ludus.data.buffers.sampling import Buffer, Sample
from ludus.data.buffers.store import REAL, STATE
from ludus.registry import BUFFERS
from ludus.types import Array, State


@BUFFERS.register("online")
class Online(Buffer):
    """Uniform, but a batch of sequences begins with stretches that were never drawn, the oldest of them first."""

    def __init__(self, *arguments: Any, **details: Any) -> None:
        super().__init__(*arguments, **details)
        self._waiting = np.zeros(self.num_envs, np.int64)  # first slots that no stretch has taken

    def sample_sequences(self, batch: int, length: int, *, state: bool = False) -> Sample:
        """[L, N] steps; new stretches of L steps that do not overlap, then uniform ones."""
        new_b, new_a = self._new(batch, length) if not state else (np.zeros(0, np.int64),) * 2
        count = batch - len(new_b)
        if not count:
            return self._sequences(new_b, new_a, np.arange(length + 1)[:, None] + new_a, 1.0, state=state)
        b, a, _ = self._draw(count, length, REAL | (STATE if state else 0))
        b, a = np.concatenate([new_b, b]), np.concatenate([new_a, a])
        return self._sequences(b, a, np.arange(length + 1)[:, None] + a, 1.0, state=state)

    def _new(self, most: int, length: int) -> tuple[Array, Array]:
        """Starts of at most `most` stretches that nobody has drawn, of the environment that waits longest."""
        self._waiting = np.maximum(self._waiting, self._oldest)
        found: list[tuple[int, int]] = []
        while len(found) < most and (waits := self.storage.end - self._waiting).max() >= length:
            b = int(waits.argmax())
            start = int(self._waiting[b])
            real = bool(self._has(np.array([b]), np.array([start]), REAL)[0])
            self._waiting[b] += length if real else 1  # no stretch begins with a final observation
            if real:
                found.append((b, start))
        chosen = np.array(found, np.int64).reshape(-1, 2)
        return chosen[:, 0], chosen[:, 1]

    def save(self, tag: str, keep: tuple[str, ...]) -> State:
        return {**super().save(tag, keep), "waiting": self._waiting.copy()}

    def load(self, state: State, source: Path | None) -> None:
        super().load(state, source)
        self._waiting = np.array(state["waiting"])

    def start_over(self) -> None:
        """Empty again: no stretch has been drawn."""
        super().start_over()
        self._waiting = np.zeros(self.num_envs, np.int64)
