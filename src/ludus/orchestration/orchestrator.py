"""Trains a run: asks the scheduler for the next hook, calls it, counts and records its Report, and so on.

It knows hooks by name only; what `collect` or `update_controller` do is the algorithm's business.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ludus.algorithms import Hook, PhaseContext
from ludus.config.schedule import Schedule
from ludus.types import Report

if TYPE_CHECKING:
    from ludus.experiment import Run
    from ludus.orchestration.evaluator import EvalResult


class Orchestrator:
    """The loop over one run."""

    def __init__(self, run: Run) -> None:
        self._run, self.scheduler = run, run.scheduler

    def run(self) -> None:
        """All phases, or until a callback asks to stop."""
        run, scheduler = self._run, self.scheduler
        run.started = time.monotonic()
        run.nan_guard.begin()
        for callback in run.callbacks:
            callback.on_start(run)
        hooks: dict[str, Hook] = {**run.hooks, "evaluate": self.evaluate}
        while (name := scheduler.next_hook()) is not None:
            if scheduler.index != run.entered:
                run.enter(scheduler.phase)
                run.entered = scheduler.index
            self._take(name, hooks[name](self._context()))
            if scheduler.cycle_ended and self._epoch_over():
                self._end_epoch()
                if run.interrupted is not None:
                    run.stop(run.interrupted)
                if run.stop_reason is not None:
                    break
        counted = "step" if scheduler.budget.unit == "env_steps" else "update"
        run.stop("all phases are done" if run.config.training.phases else f"the {counted} budget is used up")
        if run.recorder.pending:
            self._write_row()
        for callback in run.callbacks:
            callback.on_end(run)

    def _take(self, name: str, report: Report) -> None:
        """Count and record what a hook did."""
        run = self._run
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
            cfg=self._run.phase_configs[scheduler.index],
            name=phase.name,
            type=phase.type,
            position=scheduler.cycle_start,
            total=scheduler.budget.total,
            remaining_steps=scheduler.remaining_steps,
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
        if run.evaluation_due.due(progress) and run.phase.type != "eval_only" and run.evaluator is not None:
            self.evaluate()
        if progress.epochs % run.config.logging.every_epochs == 0 or run.to_confirm:
            self._write_row()
        if run.to_confirm:
            self._confirm()
        run.epoch_start, run.epoch_position = replace(progress), self.scheduler.cycle_start
        for callback in run.callbacks:
            callback.on_epoch_end(run)
        run.recorder.begin_epoch()

    def _write_row(self) -> None:
        run, progress, seconds = self._run, self._run.progress, self._run.seconds
        run.recorder.record("train", self._hyperparameters())
        if run.vitals is not None:
            measured = run.vitals.measure(epoch=progress.epochs, position=run.position, seconds=seconds)
            run.recorder.record("train", measured)
        row = run.recorder.flush(
            epoch=progress.epochs,
            env_steps=progress.env_steps,
            updates=progress.updates,
            phase=run.phase.name,
            seconds=seconds,
        )
        for callback in run.callbacks:
            callback.on_row(run, row)

    def _hyperparameters(self) -> Mapping[str, float]:
        """Schedules as the first cycle of the epoch saw them."""
        cfg, total = self._run.phase_configs[self._run.entered], self.scheduler.budget.total
        return {f"hp/{k}": v.at(self._run.epoch_position, total) for k, v in cfg if isinstance(v, Schedule)}

    # ---- evaluation ------------------------------------------------------------------------------

    def evaluate(self, now: PhaseContext | None = None) -> Report:
        """The hook `evaluate`: it neither steps nor updates, so its Report is empty."""
        run = self._run
        assert run.evaluator is not None
        result = run.evaluator.evaluate(run.position)
        self._keep(result)
        for callback in run.callbacks:
            callback.on_evaluation(run, result)
        return Report()

    def _confirm(self) -> None:
        """Play the fresh episodes that a callback asked for; they have a row of their own."""
        run = self._run
        assert run.evaluator is not None
        result = run.evaluator.confirm(run.position, run.to_confirm)
        run.to_confirm = 0
        self._keep(result)
        for callback in run.callbacks:
            callback.on_confirmation(run, result)
        self._write_row()

    def _keep(self, result: EvalResult) -> None:
        run = self._run
        run.last = result
        if run.best is None or result.mean >= run.best.mean:
            run.best = result
        run.recorder.record("val", result.metrics())
