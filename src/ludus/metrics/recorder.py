"""Collects metrics and writes them as rows to every sink."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.metrics.names import COLUMNS, join

if TYPE_CHECKING:
    from ludus.metrics.sinks import Sink

log = logging.getLogger(__name__)
_LAST = ("roll/", "time/", "system/")


class Means:
    """Mean of repeated keys; the last value for keys under `roll/`, `time/` and `system/`."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def add(self, stage: str, metrics: Mapping[str, float]) -> None:
        """Take in the metrics of a stage."""
        for name, value in metrics.items():
            key = join(stage, name)
            count = 0 if name.startswith(_LAST) else self.counts.get(key, 0)
            self.sums[key] = self.sums[key] + float(value) if count else float(value)
            self.counts[key] = count + 1

    def values(self) -> dict[str, float]:
        """The mean of each key."""
        return {key: total / self.counts[key] for key, total in self.sums.items()}

    def state_dict(self) -> dict[str, Any]:
        """Sums and counts."""
        return {"values": dict(self.sums), "counts": dict(self.counts)}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Means:
        """The inverse of `state_dict`."""
        found = cls()
        found.sums, found.counts = dict(state["values"]), dict(state["counts"])
        return found


class Recorder:
    """Collects metrics for the next row, and those of the current epoch, which may be shorter."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self.sinks = list(sinks)
        self._row, self._epoch = Means(), Means()
        self._failed: set[str] = set()

    def record(self, stage: str, metrics: Mapping[str, float]) -> None:
        """Keep the metrics of a stage for the next row."""
        if metrics:  # many hooks have none
            self._row.add(stage, metrics)
            self._epoch.add(stage, metrics)

    @property
    def epoch(self) -> dict[str, float]:
        """The metrics of the current epoch so far."""
        return self._epoch.values()

    def begin_epoch(self) -> None:
        """The next epoch starts without metrics."""
        self._epoch = Means()

    def flush(self, *, epoch: int, env_steps: int, updates: int, phase: str, seconds: float) -> dict[str, float | str]:
        """Write one row to every sink and begin the next row."""
        values, self._row = self._row.values(), Means()
        return self._write(values, epoch=epoch, env_steps=env_steps, updates=updates, phase=phase, seconds=seconds)

    def add_row(
        self,
        stage: str,
        metrics: Mapping[str, float],
        *,
        epoch: int,
        env_steps: int,
        updates: int,
        phase: str,
        seconds: float,
    ) -> dict[str, float | str]:
        """Write a row of these metrics alone; what is recorded for the next row stays."""
        values = {join(stage, name): float(value) for name, value in metrics.items()}
        return self._write(values, epoch=epoch, env_steps=env_steps, updates=updates, phase=phase, seconds=seconds)

    def _write(self, values: Mapping[str, float], **position: float | str) -> dict[str, float | str]:
        row: dict[str, float | str] = {**{column: position[column] for column in COLUMNS}, **values}
        for sink in self.sinks:
            self._guard(sink, sink.write, row)
        return row

    def file(self, path: Path, *, env_steps: int) -> None:
        """Hand a finished file, such as a video or the folder of a checkpoint, to every sink; from any thread."""
        for sink in self.sinks:
            self._guard(sink, sink.file, path, env_steps)

    @property
    def pending(self) -> bool:
        """Whether anything was recorded since the last row."""
        return bool(self._row.sums)

    def state_dict(self) -> dict[str, Any]:
        """What was recorded since the last row."""
        return self._row.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there, at the beginning of an epoch."""
        self._row, self._epoch = Means.of(state), Means()

    def epoch_state(self) -> dict[str, Any]:
        """What was recorded in this epoch, for a checkpoint within it."""
        return self._epoch.state_dict()

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Continue within an epoch."""
        self._epoch = Means.of(state)

    def close(self) -> None:
        """Close every sink."""
        for sink in self.sinks:
            self._guard(sink, sink.close)

    def _guard(self, sink: Sink, action: Callable[..., None], *arguments: Any) -> None:
        """A full disk must not end a training: one warning a sink, and the next row is tried again."""
        name = type(sink).__name__
        try:
            action(*arguments)
        except OSError as error:
            if name not in self._failed:
                log.warning("metrics: %s cannot write: %s; training goes on, rows are missing there", name, error)
            self._failed.add(name)
