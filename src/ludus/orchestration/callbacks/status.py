"""Keeps status.json alive while a run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ludus.metrics.names import RETURN
from ludus.orchestration.callbacks import Callback

if TYPE_CHECKING:
    from ludus.orchestration.orchestrator import Orchestrator

SECONDS = 2.0


class Status(Callback):
    """Writes phase, counters and the newest returns every few seconds."""

    def __init__(self, write: Callable[..., None]) -> None:
        self.write, self._due = write, 0.0

    def on_epoch_end(self, run: Orchestrator) -> None:
        """Write, but not more often than every few seconds."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + SECONDS
        budget = run.scheduler.budget
        facts: dict[str, Any] = {
            "phase": run.phase.name,
            **run.progress.counters,
            f"total_{budget.noun}": budget.total,
            "seconds": round(run.seconds, 3),
            "train_return": run.recorder.epoch.get(RETURN),
            "best": run.best.mean if run.best else None,
            "threshold": run.threshold,
            "compiled": bool(run.stateful["compiler"].state_dict()["sizes"]),
        }
        self.write("running", **facts)
