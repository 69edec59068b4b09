"""What happens when a hook reports a number that is not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ludus.algorithms import Algorithm
from ludus.errors import Diverged
from ludus.learning.learner import Learner
from ludus.types import Report

MOST_IN_A_ROW = 10


class NanGuard:
    """`raise` ends the run; `skip` and `rollback` put earlier weights back and count it as an alert."""

    def __init__(self, choice: Literal["raise", "skip", "rollback"], algorithm: Algorithm) -> None:
        self.choice, self.algorithm = choice, algorithm
        self._good: dict[str, Any] | None = None
        self._in_a_row = 0
        self.count = 0
        self.learners = [part for part in algorithm.state().values() if isinstance(part, Learner)]
        for learner in self.learners:  # many updates report no metrics of their own
            learner.watched = choice != "raise"
        self.begin()

    def begin(self) -> None:
        """A run begins or goes on: its weights are good, wherever they came from."""
        if self.choice != "raise":
            self.remember()

    def remember(self) -> None:
        """These weights are good: called after every sound update (`skip`) or at every checkpoint (`rollback`)."""
        self._good = {name: copied(part.state_dict()) for name, part in self.algorithm.state().items()}

    def at_checkpoint(self) -> None:
        """A checkpoint was taken."""
        if self.choice == "rollback":
            self.remember()

    def check(self, hook: str, report: Report, env_steps: int) -> Report:
        """The report, without what is not finite."""
        bad = [name for name, value in report.metrics.items() if not math.isfinite(value)]
        bad += [name for learner in self.learners if (name := learner.take_bad()) is not None]
        if not bad:
            if report.updates if self.learners else report.metrics:  # a sound update, not merely a sound rollout
                self._in_a_row = 0
                if self.choice == "skip":
                    self.remember()
            return report
        self._in_a_row += 1
        if self.choice == "raise" or self._in_a_row > MOST_IN_A_ROW:
            where = f"{hook} at environment step {env_steps}"
            remedy = "lower algorithm.lr, or look for extreme rewards; --debug names the tensor"
            value = report.metrics.get(bad[0], math.nan)
            if math.isfinite(value):  # the mean of its sound steps: a watched learner leaves the others out
                value = math.nan
            raise Diverged(where, f"{bad[0]} is {value}: training has diverged", remedy)
        assert self._good is not None
        for name, part in self.algorithm.state().items():
            part.load_state_dict(copied(self._good[name]))
        self.count += 1
        sound = {name: value for name, value in report.metrics.items() if math.isfinite(value)}
        return Report(report.env_steps, report.updates, {**sound, "alerts/nan": float(self.count)})

    def state_dict(self) -> dict[str, int]:
        """How often it happened, in all and in a row; the weights to go back to are those of the checkpoint."""
        return {"count": self.count, "in_a_row": self._in_a_row}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on counting."""
        self.count, self._in_a_row = int(state["count"]), int(state["in_a_row"])


def copied(state: Any) -> Any:
    """A deep copy of a state: tensors, arrays and plain data."""
    if isinstance(state, Mapping):
        return {key: copied(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(copied(value) for value in state)
    if isinstance(state, np.ndarray):
        return state.copy()
    return state.detach().clone() if hasattr(state, "detach") else state
