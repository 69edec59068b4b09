"""When something is due: on a grid of epochs or environment steps, crossing it rather than hitting it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Every:
    """True once whenever a growing count passes another multiple of `interval`; never for none or 0."""

    def __init__(self, interval: int | None, start: int = 0) -> None:
        self.interval, self.seen = interval or 0, start

    def due(self, count: int) -> bool:
        """Whether a multiple lies in (the count before, this count]."""
        before, self.seen = self.seen, count
        return bool(self.interval) and count // self.interval > before // self.interval

    def state_dict(self) -> dict[str, Any]:
        """The count last seen."""
        return {"seen": self.seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.seen = state["seen"]


class EvaluationDue:
    """Warm-up first, then the grid: after a warm-up of 50 with every 15, epoch 60 is the first."""

    def __init__(self, every_epochs: int | None, every_steps: int | None, warmup_epochs: float) -> None:
        self.by_epochs, self.by_steps = Every(every_epochs), Every(every_steps)
        self.warmup = warmup_epochs

    def due(self, epoch: int, env_steps: int, total_steps: int) -> bool:
        """Asked once at the end of every epoch."""
        wanted = self.by_epochs.due(epoch) | self.by_steps.due(env_steps)
        if self.warmup < 1:
            return wanted and (self.warmup == 0 or env_steps > self.warmup * total_steps)
        return wanted and epoch > self.warmup

    def state_dict(self) -> dict[str, Any]:
        """Both grids."""
        return {"epochs": self.by_epochs.state_dict(), "steps": self.by_steps.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.by_epochs.load_state_dict(state["epochs"])
        self.by_steps.load_state_dict(state["steps"])
