"""Things that watch a run: a callback sees everything and may ask the run to stop, but changes no algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ludus.types import Report

if TYPE_CHECKING:
    from ludus.orchestration.evaluator import EvalResult
    from ludus.orchestration.orchestrator import Orchestrator


class Callback:
    """Every moment of a run; override what you need."""

    def on_start(self, run: Orchestrator) -> None:
        """Before the first hook."""

    def on_report(self, run: Orchestrator, hook: str, report: Report) -> None:
        """After every hook."""

    def on_epoch_end(self, run: Orchestrator, row: Mapping[str, float | str]) -> None:
        """After every cycle, with its metrics."""

    def on_cycle_end(self, run: Orchestrator) -> None:
        """After everything else of a cycle: all is counted and written, so that this is the moment to save."""

    def on_evaluation(self, run: Orchestrator, result: EvalResult) -> None:
        """After every evaluation."""

    def on_phase_end(self, run: Orchestrator) -> None:
        """After the last cycle of a phase."""

    def on_end(self, run: Orchestrator) -> None:
        """When the run is over, whatever the reason."""
