"""When something is due: each time a counter passes another multiple of an interval, even if it jumps over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.config.training import Evaluation
from ludus.progress import Budget, Progress


class Every:
    """Due once for each multiple of `interval` that a growing count passes; never if the interval is none or 0."""

    def __init__(self, interval: int | None, start: int = 0) -> None:
        self.interval, self.seen = interval or 0, start

    def due(self, count: int) -> bool:
        """Whether a multiple lies in (the count before, this count]."""
        before, self.seen = self.seen, count
        return bool(self.interval) and count // self.interval > before // self.interval


class EvaluationDue:
    """The grids of evaluation after its warm-up: a warm-up of 50 epochs with every_epochs 15 starts at epoch 60."""

    def __init__(self, cfg: Evaluation, budget: Budget) -> None:
        self.budget, self.warmup = budget, cfg.warmup_epochs
        self.grids = {
            "epochs": Every(cfg.every_epochs),
            "env_steps": Every(cfg.every_steps),
            "updates": Every(cfg.every_updates),
        }

    def due(self, progress: Progress) -> bool:
        """Asked once at the end of every epoch."""
        wanted = sum(grid.due(getattr(progress, counter)) for counter, grid in self.grids.items()) > 0  # asks all
        if self.warmup >= 1:
            return wanted and progress.epochs > self.warmup
        return wanted and (self.warmup == 0 or self.budget.position(progress) > self.warmup * self.budget.total)

    def state_dict(self) -> dict[str, Any]:
        """The counts last seen."""
        return {counter: grid.seen for counter, grid in self.grids.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        for counter, grid in self.grids.items():
            grid.seen = state[counter]
