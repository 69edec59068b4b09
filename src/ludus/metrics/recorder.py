"""Collects metrics during an epoch and writes them as one row to every sink."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.metrics.names import join

if TYPE_CHECKING:
    from ludus.metrics.sinks import Sink

log = logging.getLogger(__name__)
_LAST = ("roll/", "time/", "system/")


class Recorder:
    """Mean of repeated keys within an epoch; the last value for keys under `roll/`, `time/` and `system/`."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self.sinks = list(sinks)
        self._values: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._failing: set[str] = set()

    def record(self, stage: str, metrics: Mapping[str, float]) -> None:
        """Buffer the metrics of a stage until the next flush."""
        for name, value in metrics.items():
            key = join(stage, name)
            count = 0 if name.startswith(_LAST) else self._counts.get(key, 0)
            self._values[key] = self._values[key] + float(value) if count else float(value)
            self._counts[key] = count + 1

    def flush(self, *, epoch: int, env_steps: int, updates: int, phase: str, seconds: float) -> dict[str, float | str]:
        """Write one row to every sink and start the next epoch."""
        row: dict[str, float | str] = {
            "epoch": epoch,
            "env_steps": env_steps,
            "updates": updates,
            "phase": phase,
            "seconds": seconds,
        }
        row.update({key: total / self._counts[key] for key, total in self._values.items()})
        self._values.clear()
        self._counts.clear()
        for sink in self.sinks:
            self._guard(sink, sink.write, row)
        return row

    def file(self, path: Path, *, env_steps: int) -> None:
        """Tell every sink once of a file that is ready, such as a video."""
        for sink in self.sinks:
            self._guard(sink, sink.file, path, env_steps)

    @property
    def pending(self) -> bool:
        """Whether anything was recorded since the last row."""
        return bool(self._values)

    def state_dict(self) -> dict[str, Any]:
        """What was recorded since the last row."""
        return {"values": dict(self._values), "counts": dict(self._counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._values, self._counts = dict(state["values"]), dict(state["counts"])

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
            if name not in self._failing:
                log.warning("metrics: %s cannot write: %s; training goes on, rows are missing there", name, error)
            self._failing.add(name)
        else:
            self._failing.discard(name)
