"""Saves the best evaluated state and the last one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ludus.orchestration.callbacks import Callback
from ludus.runs import checkpoint

if TYPE_CHECKING:
    from ludus.orchestration.evaluator import EvalResult
    from ludus.orchestration.orchestrator import Orchestrator


class Checkpoints(Callback):
    """`checkpoints/step=N` with links `best` and `last`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_evaluation(self, run: Orchestrator, result: EvalResult) -> None:
        """Keep a new best."""
        if run.best is result:
            checkpoint.save(self.folder, run.state_dict(), step=run.clock.env_steps, best=True)

    def on_end(self, run: Orchestrator) -> None:
        """Keep what training ended with."""
        best = run.best is None or run.best.env_steps == run.clock.env_steps
        checkpoint.save(self.folder, run.state_dict(), step=run.clock.env_steps, best=best)
