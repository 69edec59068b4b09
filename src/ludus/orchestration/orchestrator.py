"""Runs an algorithm: asks the scheduler for the next hook, calls it, counts and logs its Report, goes on.

Knows hooks by name only; what `collect` or `update_controller` mean is the algorithm's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ludus.algorithms import Algorithm, Hook, PhaseContext
from ludus.config.schedule import Schedule
from ludus.config.schema import ExperimentConfig, Phase
from ludus.metrics.recorder import Recorder
from ludus.orchestration.cadence import EvaluationDue
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.evaluator import EvalResult, Evaluator
from ludus.orchestration.nan_guard import NanGuard
from ludus.orchestration.phase_scheduler import PhaseScheduler
from ludus.orchestration.phases import changed_settings
from ludus.progress import Progress
from ludus.types import Report, Spaces, Stateful
from ludus.watch.vitals import Vitals


class Orchestrator:
    """Owns the loop, the counters, evaluation and callbacks of one run."""

    def __init__(
        self,
        config: ExperimentConfig,
        algorithm: Algorithm,
        scheduler: PhaseScheduler,
        phase_configs: Sequence[Any],
        evaluator: Evaluator | None,
        recorder: Recorder,
        *,
        callbacks: Sequence[Callback] = (),
        enter_phase: Callable[[Phase], None] = lambda _: None,
        threshold: float | None = None,
        spaces: Spaces | None = None,
        stateful: Mapping[str, Stateful] | None = None,
    ) -> None:
        self.config, self.algorithm, self.scheduler = config, algorithm, scheduler
        self.phase_configs = list(phase_configs)
        self.evaluator, self.recorder, self.callbacks = evaluator, recorder, list(callbacks)
        self.threshold, self._enter_phase, self.spaces = threshold, enter_phase, spaces
        cfg = config.training.evaluation
        self._evaluation_due = EvaluationDue(cfg, scheduler.budget)
        self.nan_guard = NanGuard(config.training.on_nan, algorithm)
        self.stateful: dict[str, Stateful] = {
            "scheduler": scheduler,
            "evaluation_due": self._evaluation_due,
            "recorder": recorder,
            "nan_guard": self.nan_guard,
            **(stateful or {}),
        }
        self.hooks: dict[str, Hook] = {**algorithm.hooks(), "evaluate": self.evaluate}
        self.stop_reason: str | None = None
        self.interrupted: str | None = None
        self.best: EvalResult | None = None
        self.last: EvalResult | None = None
        self._started: float | None = None
        self._seconds_before = 0.0
        self._entered = -1
        self._epoch_start = Progress()
        self._schedules_at = 0  # the position at which the first cycle of this epoch began
        self.say: Callable[[str], None] = lambda _: None
        """One line for whoever watches; the session points it at the console."""
        self.vitals: Vitals | None = None
        """Speed and memory for every row; only a session asks for them."""

    @property
    def progress(self) -> Progress:
        """Environment steps, updates, cycles and epochs so far."""
        return self.scheduler.progress

    @property
    def position(self) -> int:
        """How much of the budget is used: environment steps, or updates."""
        return self.scheduler.position

    @property
    def phase(self) -> Phase:
        """The phase whose hook was called last."""
        return self.scheduler.phases[max(self._entered, 0)]

    @property
    def seconds(self) -> float:
        """Seconds of training, those before a resume included."""
        return self._seconds_before + (0.0 if self._started is None else time.monotonic() - self._started)

    @property
    def settings(self) -> Any:
        """The algorithm's config as it is now."""
        return self.phase_configs[min(self.scheduler.index, len(self.phase_configs) - 1)]

    def change_settings(self, changes: Mapping[str, Any]) -> None:
        """Change the algorithm's config for what is left of this phase; checked like any config."""
        index = min(self.scheduler.index, len(self.phase_configs) - 1)
        changed = changed_settings(self.settings, changes, "settings", self.scheduler.quantum)
        self.algorithm.check(changed, self.scheduler.phase.buffer)
        self.phase_configs[index] = changed

    def stop(self, reason: str) -> None:
        """Ask the run to end after the current cycle."""
        self.stop_reason = self.stop_reason or reason

    def interrupt(self, reason: str) -> None:
        """Ask the run to end early, to be resumed later."""
        self.interrupted = self.interrupted or reason

    @property
    def stopped_early(self) -> bool:
        """Whether an interrupt ended it; one that came after the last step did not."""
        return self.interrupted is not None and self.stop_reason == self.interrupted

    def run(self) -> None:
        """All phases, or until a callback asks to stop."""
        self._started = time.monotonic()
        self.nan_guard.begin()
        self._tell("on_start")
        while (hook := self.scheduler.next_hook()) is not None:
            self._call(hook)
            if self.scheduler.cycle_ended and self._epoch_over():
                self._end_epoch()
                if self.interrupted is not None:
                    self.stop(self.interrupted)
                if self.stop_reason is not None:
                    break
        counted = "step" if self.scheduler.budget.unit == "env_steps" else "update"
        self.stop("all phases are done" if self.config.training.phases else f"the {counted} budget is used up")
        if self.recorder.pending:
            self._write_row()
        self._tell("on_end")

    def _call(self, hook: str) -> None:
        index = self.scheduler.index
        if index != self._entered:
            self._enter_phase(self.scheduler.phase)
            self._entered = index
        report = self.hooks[hook](self._context())
        report = self.nan_guard.check(hook, report, self._moment)
        self.scheduler.advance(report, worked=True if hook == "evaluate" else None)
        if hook != "evaluate":
            self.recorder.record("train", report.metrics)
        self._tell("on_report", hook, report)
        if self.scheduler.index != index:
            self._tell("on_phase_end")

    @property
    def _moment(self) -> str:
        """For error messages."""
        return f"{'environment step' if self.scheduler.budget.unit == 'env_steps' else 'update'} {self.position}"

    def _epoch_over(self) -> bool:
        """An epoch is one cycle, or as many tiny ones as it needs; the end of a phase always ends it."""
        phase, progress = self.phase, self.progress
        if self.scheduler.index != self._entered or phase.type == "eval_only":
            return True
        if phase.type == "offline":
            return progress.updates - self._epoch_start.updates >= self.config.training.epoch_updates
        return progress.env_steps - self._epoch_start.env_steps >= self.algorithm.epoch_steps

    def _context(self) -> PhaseContext:
        scheduler, phase = self.scheduler, self.scheduler.phase
        return PhaseContext(
            cfg=self.phase_configs[scheduler.index],
            name=phase.name,
            type=phase.type,
            position=scheduler.cycle_start,
            total=scheduler.budget.total,
            remaining_steps=scheduler.remaining_steps,
            buffer=phase.buffer,
        )

    def _end_epoch(self) -> None:
        progress = self.progress
        progress.epochs += 1
        metrics = self.nan_guard.check_metrics("update", self.algorithm.metrics(), self._moment)
        self.recorder.record("train", metrics)
        if self._evaluation_due.due(progress) and self.phase.type != "eval_only" and self.evaluator is not None:
            self.evaluate()
        if progress.epochs % self.config.logging.every_epochs == 0:
            self._write_row()
        self._epoch_start = replace(progress)
        self._schedules_at = self.scheduler.cycle_start
        self._tell("on_epoch_end")
        self.recorder.begin_epoch()

    def _write_row(self) -> None:
        progress, seconds = self.progress, self.seconds
        self.recorder.record("train", self._hyperparameters())
        if self.vitals is not None:
            measured = self.vitals.measure(epoch=progress.epochs, position=self.position, seconds=seconds)
            self.recorder.record("train", measured)
        row = self.recorder.flush(
            epoch=progress.epochs,
            env_steps=progress.env_steps,
            updates=progress.updates,
            phase=self.phase.name,
            seconds=seconds,
        )
        self._tell("on_row", row)

    def evaluate(self, now: PhaseContext | None = None) -> Report:
        """The hook `evaluate`: neither steps nor updates, so its Report is empty."""
        assert self.evaluator is not None
        result = self.evaluator.evaluate(self.position)
        self.last = result
        if self.best is None or result.mean >= self.best.mean:
            self.best = result
        self.recorder.record("val", result.metrics())
        self._tell("on_evaluation", result)
        return Report()

    def _hyperparameters(self) -> Mapping[str, float]:
        cfg, total = self.phase_configs[self._entered], self.scheduler.budget.total
        return {f"hp/{k}": v.at(self._schedules_at, total) for k, v in cfg if isinstance(v, Schedule)}

    def _tell(self, moment: str, *details: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, moment)(self, *details)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds: the algorithm's parts and everything around them that changes."""
        parts = {name: part.state_dict() for name, part in self.algorithm.state().items()}
        run = {
            "best": self.best.state_dict() if self.best else None,
            "last": self.last.state_dict() if self.last else None,
            "seconds": self.seconds,
            "entered": self._entered,
            "epoch_start": asdict(self._epoch_start),
            "schedules_at": self._schedules_at,
            "settings": [cfg.model_dump(mode="json") for cfg in self.phase_configs],
        }
        return {
            "algorithm": parts,
            "run": run,
            "callbacks": {name: callback.state_dict() for name, callback in self._stateful_callbacks().items()},
            **{name: part.state_dict() for name, part in self.stateful.items()},
        }

    def _stateful_callbacks(self) -> dict[str, Any]:
        found = [c for c in self.callbacks if hasattr(c, "state_dict")]
        names = [type(c).__name__ for c in found]
        return {f"{name} {names[:i].count(name)}": c for i, (name, c) in enumerate(zip(names, found, strict=True))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where the state was taken; phases with environments of their own are entered first."""
        run = state["run"]
        self.stateful["scheduler"].load_state_dict(state["scheduler"])
        if run["entered"] >= 0:
            self._enter_phase(self.scheduler.phases[run["entered"]])
        for name, part in self.algorithm.state().items():
            part.load_state_dict(state["algorithm"][name])
        for name, part in self.stateful.items():
            part.load_state_dict(state[name])
        for name, callback in self._stateful_callbacks().items():
            if name in state["callbacks"]:
                callback.load_state_dict(state["callbacks"][name])
        saved = zip(self.phase_configs, run["settings"], strict=True)
        self.phase_configs = [type(cfg).model_validate(settings) for cfg, settings in saved]
        self.best, self.last = EvalResult.from_state(run["best"]), EvalResult.from_state(run["last"])
        self._seconds_before, self._entered = run["seconds"], run["entered"]
        self._epoch_start, self._schedules_at = Progress(**run["epoch_start"]), run["schedules_at"]
