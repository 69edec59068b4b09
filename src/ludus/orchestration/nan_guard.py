"""Reacts to metrics and gradients that are not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ludus.algorithms import Algorithm
from ludus.errors import Diverged
from ludus.learning.learner import Learner
from ludus.types import Report

MOST_IN_A_ROW = 10


class NanGuard:
    """`raise` ends the run; `skip` and `rollback` restore earlier weights and count an alert."""

    def __init__(self, choice: Literal["raise", "skip", "rollback"], algorithm: Algorithm) -> None:
        self.choice, self.algorithm = choice, algorithm
        self._good: dict[str, Any] | None = None
        self._in_a_row = 0
        self.count = 0
        self.learners = [part for part in algorithm.state().values() if isinstance(part, Learner)]
        for learner in self.learners:  # not every update reports metrics
            learner.watched = choice != "raise"
        self.begin()

    def begin(self) -> None:
        """Called when a run starts or resumes: its present weights are the ones to go back to."""
        if self.choice != "raise":
            self.remember()

    def remember(self) -> None:
        """Keep a copy of the weights: after every sound update (`skip`) or at every checkpoint (`rollback`)."""
        self._good = {name: copied(part.state_dict()) for name, part in self.algorithm.state().items()}

    def at_checkpoint(self) -> None:
        """Called when a checkpoint was taken."""
        if self.choice == "rollback":
            self.remember()

    def check(self, hook: str, report: Report, moment: str) -> Report:
        """The report of a hook without numbers that are not finite; `moment` says when, for the error."""
        sound = bool(report.updates if self.learners else report.metrics)  # an update took place, not only a rollout
        metrics = report.metrics
        bad = [name for name, value in metrics.items() if not math.isfinite(value)]
        bad += [name for learner in self.learners if (name := learner.take_bad()) is not None]
        if not bad:
            if sound:
                self._in_a_row = 0
                if self.choice == "skip":
                    self.remember()
            return report
        self._in_a_row += 1
        if self.choice == "raise" or self._in_a_row > MOST_IN_A_ROW:
            raise self._diverged(f"{hook} at {moment}", bad[0], metrics)
        assert self._good is not None
        for name, part in self.algorithm.state().items():
            part.load_state_dict(copied(self._good[name]))
        self.count += 1
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        return replace(report, metrics={**finite, "alerts/nan": float(self.count)})

    def _diverged(self, where: str, name: str, metrics: Mapping[str, float]) -> Diverged:
        value = metrics.get(name, math.nan)
        if math.isfinite(value):  # a watched learner leaves bad steps out of its means
            value = math.nan
        fields = self.algorithm.Config.model_fields
        rates = ["lr"] if "lr" in fields else [field for field in fields if field.endswith("_lr")]
        lower = " or ".join(f"algorithm.{rate}" for rate in rates)
        remedy = f"lower {lower}, or look for extreme rewards; --debug names the tensor"
        return Diverged(where, f"{name} is {value}: training has diverged", remedy)

    def state_dict(self) -> dict[str, int]:
        """How often it happened, in total and in a row; the copy of the weights is not saved."""
        return {"count": self.count, "in_a_row": self._in_a_row}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue counting."""
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
