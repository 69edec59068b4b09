"""Trains a run: asks the scheduler for the next hook, calls it, counts and records its Report, and so on.

It knows hooks by name only; what `collect` or `update_controller` do is the algorithm's business.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ludus.algorithms import AlgorithmConfig, Hook, PhaseContext
from ludus.orchestration.agreement import agreed_settings
from ludus.orchestration.evaluations import Evaluations
from ludus.orchestration.phases import check_returned
from ludus.orchestration.rows import write_row
from ludus.types import Report

if TYPE_CHECKING:
    from ludus.run import Run


class Orchestrator:
    """The loop over one run."""

    def __init__(self, run: Run) -> None:
        self._run, self.scheduler = run, run.scheduler
        self._evaluations = Evaluations(run)
        self._agreed: list[AlgorithmConfig] = []  # of several ranks: their share of the settings since the last epoch

    def run(self) -> None:
        """All phases, or until a callback asks to stop."""
        run, scheduler = self._run, self.scheduler
        run.started = time.monotonic()
        run.nan_guard.begin()
        for callback in run.callbacks:
            callback.on_start(run)
        run.ranks.release()
        if run.ranks.count > 1:
            self._agreed = agreed_settings(run)
        hooks: dict[str, Hook] = {**run.hooks, "evaluate": self._evaluations.evaluate}
        while (name := scheduler.next_hook()) is not None:
            if scheduler.index != run.entered:
                run.enter(scheduler.phase)
                run.entered = scheduler.index
            self._take(name, hooks[name](self._context()))
            if scheduler.cycle_ended and self._cycle_was_last():
                break
        counted = "step" if scheduler.budget.unit == "env_steps" else "update"
        if not run.stopped_early:  # otherwise the resumed run takes it, where it would have been taken
            self._evaluations.take_background(epoch=run.progress.epochs + 1)
        run.stop("all phases are done" if run.config.training.phases else f"the {counted} budget is used up")
        if run.recorder.pending and not run.stopped_early:
            write_row(run)
        for callback in run.callbacks:
            callback.on_end(run)
        run.ranks.release()

    def _cycle_was_last(self) -> bool:
        """End the epoch, if it is over, and say whether the run ends here; ranks agree on that once in an epoch."""
        run, over = self._run, self._epoch_over()
        if run.ranks.count > 1:
            if over:
                self._end_epoch()
                self._agreed = agreed_settings(run)
            return over and run.stop_reason is not None
        if over or run.stop_reason is not None:
            self._end_epoch()
        if run.interrupted is not None:  # also within an epoch, which a resumed run goes on with
            run.stop(run.interrupted)
        return run.stop_reason is not None

    def _take(self, name: str, report: Report) -> None:
        """Count and record what a hook did."""
        run = self._run
        check_returned(name, report)
        if run.ranks.count > 1:  # every rank took as many
            report = replace(report, env_steps=report.env_steps * run.ranks.count)
        report = run.nan_guard.check(name, report, self._moment)
        self.scheduler.advance(report, worked=True if name == "evaluate" else None)
        if name != "evaluate":
            run.recorder.record("train", report.metrics)
        for callback in run.callbacks:
            callback.on_report(run, name, report)
        if self.scheduler.index != run.entered:
            for callback in run.callbacks:
                callback.on_phase_end(run)

    def _context(self) -> PhaseContext:
        scheduler, phase = self.scheduler, self.scheduler.phase
        return PhaseContext(
            cfg=(self._agreed or self._run.phase_configs)[scheduler.index],
            name=phase.name,
            type=phase.type,
            position=scheduler.cycle_start,
            total=scheduler.budget.total,
            remaining_steps=scheduler.remaining_steps // self._run.ranks.count,
            cycle=scheduler.progress.cycles,
            buffer=phase.buffer,
        )

    @property
    def _moment(self) -> str:
        """For error messages."""
        noun = "environment step" if self.scheduler.budget.unit == "env_steps" else "update"
        return f"{noun} {self.scheduler.position}"

    # ---- epochs ----------------------------------------------------------------------------------

    def _epoch_over(self) -> bool:
        """An epoch is one cycle, or as many tiny ones as it needs; the end of a phase always ends it."""
        run, phase, progress = self._run, self._run.phase, self._run.progress
        if self.scheduler.index != run.entered or phase.type == "eval_only":
            return True
        if phase.type == "offline":
            return progress.updates - run.epoch_start.updates >= run.config.training.epoch_updates
        return progress.env_steps - run.epoch_start.env_steps >= run.algorithm.epoch_steps

    def _end_epoch(self) -> None:
        run, progress = self._run, self._run.progress
        progress.epochs += 1
        summed = run.nan_guard.check("update", Report(metrics=run.algorithm.metrics()), self._moment)
        run.recorder.record("train", summed.metrics)
        self._evaluations.at_epoch_end()
        if progress.epochs % run.config.logging.every_epochs == 0 or run.to_confirm:
            write_row(run)
        run.to_confirm = run.ranks.from_first(run.to_confirm)
        if run.to_confirm:
            self._evaluations.confirm()
            write_row(run)
        run.epoch_start, run.epoch_position = replace(progress), self.scheduler.cycle_start
        for callback in run.callbacks:
            callback.on_epoch_end(run)
        run.ranks.release()
        run.recorder.begin_epoch()
