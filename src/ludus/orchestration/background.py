"""Evaluations whose result arrives later: begun at one evaluation, taken at the next one or at the end of the run.

Arriving at fixed moments, results have the same effects in every repetition, however long the episodes take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ludus.orchestration.callbacks import Callback
from ludus.orchestration.evaluator import EvalResult, Evaluator

if TYPE_CHECKING:
    from ludus.run import Run


class Deferred(Callback):
    """Plays at once and keeps the result: for a run without a folder, and to repeat one that had a process for it."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.name = ""
        """Checkpoint with the weights of the evaluation that is under way; empty if there is none."""
        self.taken = ""
        """The same of the result that was taken last."""
        self.counters: dict[str, int] = {}
        """Environment steps and updates when it was begun."""
        self._result: EvalResult | None = None

    def begin(self, run: Run) -> None:
        """Begin the evaluation of the present weights, which a checkpoint at the end of this epoch holds."""
        assert not self.name
        self.name = run.scheduler.checkpoint_name
        self.counters = {"env_steps": run.progress.env_steps, "updates": run.progress.updates}
        self.play(run.position)

    def take(self) -> EvalResult | None:
        """The result of the evaluation that is under way; waits for it. None if there is none."""
        if not self.name:
            return None
        result = self.result()
        self.taken, self.name = self.name, ""
        return result

    def play(self, position: int) -> None:
        """Start the episodes."""
        self._result = self.evaluator.evaluate(position)

    def result(self) -> EvalResult:
        """Their result."""
        assert self._result is not None
        return self._result

    def state_dict(self) -> dict[str, Any]:
        """What is under way."""
        result = self._result.state_dict() if self.name and self._result else None
        return {"name": self.name, "counters": dict(self.counters), "result": result}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with it."""
        self.name, self.counters = str(state["name"]), dict(state["counters"])
        self._result = EvalResult.from_state(state["result"])
