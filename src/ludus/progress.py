"""The one clock of a run: what it has done so far, and the budget it is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ludus.types import Report

Unit = Literal["env_steps", "updates"]
"""The counter that schedules, grids, checkpoint names and the remaining time of a run follow."""
CHECKPOINTS: dict[Unit, str] = {"env_steps": "step", "updates": "update"}
"""What checkpoints are called: `step=4096`, or `update=500` in a run that takes no environment steps. One of an offline
phase that follows step 4,096 is called `step=4096+500`."""


@dataclass
class Progress:
    """Four counters that are never mixed: environment steps, optimizer steps, cycles of hooks, and epochs."""

    env_steps: int = 0
    updates: int = 0
    cycles: int = 0
    epochs: int = 0

    def add(self, report: Report) -> None:
        """Count what a hook did."""
        self.env_steps += report.env_steps
        self.updates += report.updates

    @property
    def counters(self) -> dict[str, int]:
        """The counters that status.json and the summary of a run show."""
        return {"env_steps": self.env_steps, "updates": self.updates, "epochs": self.epochs}


@dataclass(frozen=True)
class Budget:
    """The length of a run: `total` environment steps, or updates if it only learns from stored steps."""

    total: int
    unit: Unit = "env_steps"

    def position(self, progress: Progress) -> int:
        """How much of the budget is used."""
        return progress.env_steps if self.unit == "env_steps" else progress.updates

    def checkpoint(self, progress: Progress, since_collecting: int = 0) -> str:
        """The name of the checkpoint taken now; updates since the newest environment step are written behind it."""
        offline = f"+{since_collecting}" if since_collecting and self.unit == "env_steps" else ""
        return f"{CHECKPOINTS[self.unit]}={self.position(progress)}{offline}"

    @property
    def noun(self) -> str:
        """What is counted, for people."""
        return "steps" if self.unit == "env_steps" else "updates"
