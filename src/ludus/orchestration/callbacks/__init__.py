"""Callbacks: parts that are called at fixed moments of a run. They are called in the order of `run.callbacks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ludus.types import Report

if TYPE_CHECKING:
    from ludus.orchestration.evaluator import EvalResult
    from ludus.run import Run


class Callback:
    """The moments of a run; override those you need."""

    def on_start(self, run: Run) -> None:
        """Before the first hook."""

    def on_report(self, run: Run, hook: str, report: Report) -> None:
        """After every hook."""

    def on_evaluation(self, run: Run, result: EvalResult) -> None:
        """After every evaluation."""

    def on_confirmation(self, run: Run, result: EvalResult) -> None:
        """After the fresh episodes that somebody asked for with `run.confirm`."""

    def on_row(self, run: Run, row: Mapping[str, float | str]) -> None:
        """After a row of metrics was written, every `logging.every_epochs` epochs."""

    def on_epoch_end(self, run: Run) -> None:
        """At the end of every epoch, after its evaluation and its row; `run.recorder.epoch` has its metrics."""

    def on_phase_end(self, run: Run) -> None:
        """After the last cycle of a phase."""

    def on_end(self, run: Run) -> None:
        """When the run is over and nothing failed."""

    def close(self) -> None:
        """When the run is closed, whatever it ended with."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds of it; most hold nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
