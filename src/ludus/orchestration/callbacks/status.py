"""Keeps status.json alive while a run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ludus.orchestration.callbacks import Callback

if TYPE_CHECKING:
    from ludus.orchestration.orchestrator import Orchestrator

SECONDS = 2.0


class Status(Callback):
    """Writes phase, counters and the newest returns every few seconds."""

    def __init__(self, write: Callable[..., None]) -> None:
        self.write, self._due = write, 0.0

    def on_epoch_end(self, run: Orchestrator, row: Mapping[str, float | str]) -> None:
        """Not more often than a person would look."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + SECONDS
        clock = run.clock
        facts: dict[str, Any] = {
            "phase": row["phase"],
            "env_steps": clock.env_steps,
            "updates": clock.updates,
            "epochs": clock.epochs,
            "total_steps": run.scheduler.total_steps,
            "seconds": round(run.seconds, 3),
            "train_return": row.get("train/roll/ep_rew/mean"),
            "best": run.best.mean if run.best else None,
            "threshold": run.threshold,
            "compiled": bool(run.stateful["compiler"].state_dict()["sizes"]),
        }
        self.write("running", **facts)
