"""Trains a run: asks the scheduler for the next hook, calls it, counts and records its Report, and so on.

It knows hooks by name only; what `collect` or `update_controller` do is the algorithm's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ludus.algorithms import AlgorithmConfig, Hook, PhaseContext
from ludus.config.schedule import Schedule
from ludus.orchestration.evaluator import EvalResult
from ludus.types import Report

if TYPE_CHECKING:
    from ludus.run import Run


class Orchestrator:
    """The loop over one run."""

    def __init__(self, run: Run) -> None:
        self._run, self.scheduler = run, run.scheduler
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
            self._agree()
        hooks: dict[str, Hook] = {**run.hooks, "evaluate": self.evaluate}
        while (name := scheduler.next_hook()) is not None:
            if scheduler.index != run.entered:
                run.enter(scheduler.phase)
                run.entered = scheduler.index
            self._take(name, hooks[name](self._context()))
            if scheduler.cycle_ended and self._cycle_was_last():
                break
        counted = "step" if scheduler.budget.unit == "env_steps" else "update"
        if run.interrupted is None:  # otherwise the resumed run takes it, where it would have been taken
            self._take_background(epoch=run.progress.epochs + 1)
        run.stop("all phases are done" if run.config.training.phases else f"the {counted} budget is used up")
        if run.recorder.pending and not run.stopped_early:
            self._write_row()
        for callback in run.callbacks:
            callback.on_end(run)
        run.ranks.release()

    def _cycle_was_last(self) -> bool:
        """End the epoch, if it is over, and say whether the run ends here; ranks agree on that once in an epoch."""
        run, over = self._run, self._epoch_over()
        if run.ranks.count > 1:
            if over:
                self._end_epoch()
                self._agree()
            return over and run.stop_reason is not None
        if over or run.stop_reason is not None:
            self._end_epoch()
        if run.interrupted is not None:  # also within an epoch, which a resumed run goes on with
            run.stop(run.interrupted)
        return run.stop_reason is not None

    def _take(self, name: str, report: Report) -> None:
        """Count and record what a hook did."""
        run = self._run
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
        if run.evaluation_due.due(progress) and run.phase.type != "eval_only" and run.evaluator is not None:
            self.evaluate() if run.background is None else self._exchange()
        if progress.epochs % run.config.logging.every_epochs == 0 or run.to_confirm:
            self._write_row()
        run.to_confirm = run.ranks.from_first(run.to_confirm)
        if run.to_confirm:
            self._confirm()
        run.epoch_start, run.epoch_position = replace(progress), self.scheduler.cycle_start
        for callback in run.callbacks:
            callback.on_epoch_end(run)
        run.ranks.release()
        run.recorder.begin_epoch()

    def _agree(self) -> None:
        """All ranks stop at the same epoch, for whichever of them got a signal, and go on with rank 0's settings."""
        run, ranks = self._run, self._run.ranks
        own: dict[str, Any] = {"interrupted": run.interrupted, "stop": run.stop_reason}
        if ranks.rank == 0:
            own["settings"] = [cfg.model_dump(mode="json") for cfg in run.phase_configs]
        heard = ranks.gather(own)  # a signal that comes later counts at the next epoch
        interrupted = next((one["interrupted"] for one in heard if one["interrupted"]), None)
        if interrupted is not None:
            run.interrupt(interrupted)
        run.stop_reason = heard[0]["stop"] or interrupted
        saved = zip(run.phase_configs, heard[0]["settings"], strict=True)
        run.phase_configs = [type(cfg).model_validate(settings) for cfg, settings in saved]
        self._agreed = [run.own_share(cfg) for cfg in run.phase_configs]

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
        result = self._played(run.evaluator.evaluate, run.position)
        self._keep(result)
        for callback in run.callbacks:
            callback.on_evaluation(run, result)
        return Report()

    def _exchange(self) -> None:
        """Take the result of the evaluation before this one, and begin this one."""
        run = self._run
        assert run.background is not None
        self._take_background(epoch=run.progress.epochs)
        run.background.begin(run)

    def _take_background(self, *, epoch: int) -> None:
        """A result that arrives later has a row of its own, at its own step.

        `epoch` is the one in which it arrives: a run that goes on from an earlier one sets the row aside.
        """
        run, background = self._run, self._run.background
        result = None if background is None else background.take()
        if background is None or result is None:
            return
        self._rank(result)
        row = run.recorder.add_row(
            "val", result.metrics(), epoch=epoch, phase=run.phase.name, seconds=run.seconds, **background.counters
        )
        for callback in run.callbacks:
            callback.on_row(run, row)
        for callback in run.callbacks:
            callback.on_evaluation(run, result)

    def _confirm(self) -> None:
        """Play the fresh episodes that a callback asked for; they have a row of their own."""
        run = self._run
        assert run.evaluator is not None
        result = self._played(run.evaluator.confirm, run.position, run.to_confirm)
        run.to_confirm = 0
        self._keep(result)
        for callback in run.callbacks:
            callback.on_confirmation(run, result)
        self._write_row()

    def _played(self, play: Callable[..., EvalResult], *arguments: int) -> EvalResult:
        """The episodes of an evaluation; of several ranks the first plays them, and the others wait."""
        ranks = self._run.ranks
        if ranks.count == 1:
            return play(*arguments)
        found = EvalResult.from_state(ranks.from_first(play(*arguments).state_dict() if ranks.rank == 0 else None))
        assert found is not None
        return found

    def _keep(self, result: EvalResult) -> None:
        self._rank(result)
        self._run.recorder.record("val", result.metrics())

    def _rank(self, result: EvalResult) -> None:
        run = self._run
        run.last = result
        if run.best is None or result.mean >= run.best.mean:
            run.best = result
