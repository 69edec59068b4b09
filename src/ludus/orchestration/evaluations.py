"""The evaluations of a run: at the end of an epoch, as the hook `evaluate`, in the background, to confirm a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ludus.algorithms import PhaseContext
from ludus.orchestration.evaluator import EvalResult
from ludus.types import Report

if TYPE_CHECKING:
    from ludus.run import Run


class Evaluations:
    """Plays, keeps the best and the last result, tells callbacks."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def at_epoch_end(self) -> None:
        """Evaluate if it is time to; in the background, take the result of the evaluation before and begin this one."""
        run = self._run
        if not run.evaluation_due.due(run.progress) or run.phase.type == "eval_only" or run.evaluator is None:
            return
        if run.background is None:
            self.evaluate()
        else:
            self.take_background(epoch=run.progress.epochs)
            run.background.begin(run)

    def evaluate(self, now: PhaseContext | None = None) -> Report:
        """The hook `evaluate`: it neither steps nor updates, so its Report is empty."""
        run = self._run
        assert run.evaluator is not None
        result = self._played(run.evaluator.evaluate, run.position)
        self._keep(result)
        for callback in run.callbacks:
            callback.on_evaluation(run, result)
        return Report()

    def take_background(self, *, epoch: int) -> None:
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

    def confirm(self) -> None:
        """Play the fresh episodes that a callback asked for; they have a row of their own."""
        run = self._run
        assert run.evaluator is not None
        result = self._played(run.evaluator.confirm, run.position, run.to_confirm)
        run.to_confirm = 0
        self._keep(result)
        for callback in run.callbacks:
            callback.on_confirmation(run, result)

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
