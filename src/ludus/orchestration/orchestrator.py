"""Runs an algorithm: asks the scheduler for the next hook, calls it, counts and logs its Report, goes on.

Knows hooks by name only; what `collect` or `update_controller` mean is the algorithm's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ludus.algorithms import Algorithm, Hook, PhaseContext
from ludus.config.schedule import Schedule
from ludus.config.schema import ExperimentConfig, Phase
from ludus.errors import ConfigError
from ludus.metrics.recorder import Recorder
from ludus.orchestration.cadence import EvaluationDue
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.evaluator import EvalResult, Evaluator
from ludus.orchestration.phase_scheduler import PhaseScheduler
from ludus.types import Report, Stateful


class Orchestrator:
    """Owns the loop, the counters, evaluation and callbacks of one run."""

    def __init__(
        self,
        config: ExperimentConfig,
        algorithm: Algorithm,
        scheduler: PhaseScheduler,
        phase_configs: Sequence[Any],
        evaluator: Evaluator,
        recorder: Recorder,
        *,
        callbacks: Sequence[Callback] = (),
        enter_phase: Callable[[Phase], None] = lambda _: None,
        threshold: float | None = None,
        stateful: Mapping[str, Stateful] | None = None,
    ) -> None:
        self.config, self.algorithm, self.scheduler, self.phase_configs = config, algorithm, scheduler, phase_configs
        self.evaluator, self.recorder, self.callbacks = evaluator, recorder, list(callbacks)
        self.threshold, self._enter_phase = threshold, enter_phase
        self.stateful: dict[str, Stateful] = {"scheduler": scheduler, **(stateful or {})}
        self.hooks: dict[str, Hook] = {**algorithm.hooks(), "evaluate": self.evaluate}
        cfg = config.training.evaluation
        self._evaluation_due = EvaluationDue(cfg.every_epochs, cfg.every_steps, cfg.warmup_epochs)
        self.stop_reason: str | None = None
        self.best: EvalResult | None = None
        self.last: EvalResult | None = None
        self._started = time.monotonic()
        self._entered = -1
        self._epoch_start = 0  # where this epoch's schedules were read

    @property
    def clock(self) -> Any:
        """env_steps, updates and cycles so far."""
        return self.scheduler.clock

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def stop(self, reason: str) -> None:
        """Ask the run to end after the current cycle."""
        self.stop_reason = self.stop_reason or reason

    def run(self) -> None:
        """All phases, or until a callback asks to stop."""
        self._started = time.monotonic()
        self._tell("on_start")
        while self.stop_reason is None:
            hook = self.scheduler.next_hook()
            if hook is None:
                self.stop("all phases are done" if self.config.training.phases else "the step budget is used up")
                break
            self._call(hook)
            if self.scheduler.cycle_ended:
                self._end_epoch()
        self._tell("on_end")

    def _call(self, hook: str) -> None:
        index = self.scheduler.index
        if index != self._entered:
            self._enter_phase(self.scheduler.phase)
            self._entered = index
        report = self.hooks[hook](self._context())
        self._refuse_nan(hook, report)
        self.scheduler.advance(report, worked=True if hook == "evaluate" else None)
        if hook != "evaluate":
            self.recorder.record("train", report.metrics)
        self._tell("on_report", hook, report)
        if self.scheduler.index != index:
            self._tell("on_phase_end")

    def _context(self) -> PhaseContext:
        scheduler, phase = self.scheduler, self.scheduler.phase
        return PhaseContext(
            cfg=self.phase_configs[scheduler.index],
            name=phase.name,
            type=phase.type,
            env_steps=scheduler.cycle_start_steps,
            total_steps=scheduler.total_steps,
            remaining_steps=scheduler.remaining_steps,
            buffer=phase.buffer,
        )

    def _refuse_nan(self, hook: str, report: Report) -> None:
        bad = [name for name, value in report.metrics.items() if not np.isfinite(value)]
        if bad:
            where = f"{hook} at environment step {self.clock.env_steps}"
            remedy = "lower algorithm.lr, or look for extreme rewards"
            raise ConfigError(where, f"{bad[0]} is {report.metrics[bad[0]]}: training has diverged", remedy)

    def _end_epoch(self) -> None:
        clock, phase = self.clock, self.scheduler.phase
        wanted = self._evaluation_due.due(clock.cycles, clock.env_steps, self.scheduler.total_steps)
        if wanted and phase.type != "eval_only":
            self.evaluate(self._context() if not self.scheduler.finished else None)
        if clock.cycles % self.config.logging.every_epochs and self.stop_reason is None:
            return
        self.recorder.record(
            "train", {**self._hyperparameters(), "time/fps": clock.env_steps / max(self.seconds, 1e-9)}
        )
        row = self.recorder.flush(
            epoch=clock.cycles,
            env_steps=clock.env_steps,
            updates=clock.updates,
            phase=phase.name,
            seconds=self.seconds,
        )
        self._epoch_start = self.scheduler.cycle_start_steps
        self._tell("on_epoch_end", row)

    def evaluate(self, now: PhaseContext | None = None) -> Report:
        """The hook `evaluate`: neither steps nor updates, so its Report is empty."""
        result = self.evaluator.evaluate(self.clock.env_steps)
        self.last = result
        if self.best is None or result.mean >= self.best.mean:
            self.best = result
        self.recorder.record("val", result.metrics())
        self._tell("on_evaluation", result)
        return Report()

    def _hyperparameters(self) -> Mapping[str, float]:
        index = min(self.scheduler.index, len(self.phase_configs) - 1)
        cfg, total = self.phase_configs[index], self.scheduler.total_steps
        return {f"hp/{k}": v.at(self._epoch_start, total) for k, v in cfg if isinstance(v, Schedule)}

    def _tell(self, moment: str, *details: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, moment)(self, *details)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds: the algorithm's parts and everything around them that changes."""
        parts = {name: part.state_dict() for name, part in self.algorithm.state().items()}
        return {"algorithm": parts, **{name: part.state_dict() for name, part in self.stateful.items()}}
