"""Scores of a group of runs with their statistics, and the probability that one group beats another."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ludus.reports.statistics import iqm, probability_of_improvement, stratified_bootstrap


@dataclass(frozen=True)
class Scores:
    """One number per run of a group, and its statistics."""

    values: tuple[float, ...]
    mean: float
    median: float
    iqm: float
    low: float
    """Lower end of the 95 % bootstrap interval of the IQM; NaN for a single run."""
    high: float
    best: float
    worst: float

    @classmethod
    def of(cls, strata: Sequence[Sequence[float]]) -> Scores:
        """Statistics of the values of all strata (environments)."""
        values = [value for stratum in strata for value in stratum]
        low, high = stratified_bootstrap(strata) if len(values) > 1 else (math.nan, math.nan)
        mean, median = statistics.fmean(values), statistics.median(values)
        return cls(tuple(values), mean, median, float(iqm(values)), low, high, max(values), min(values))

    def overlaps(self, other: Scores) -> bool:
        """Whether both have an interval and the two have a value in common."""
        return self.low <= other.high and other.low <= self.high

    def data(self) -> dict[str, object]:
        """Plain data for `--json`."""
        interval = None if math.isnan(self.low) else [self.low, self.high]
        averages: dict[str, object] = {"mean": self.mean, "median": self.median, "iqm": self.iqm, "iqm_ci95": interval}
        return averages | {"min": self.worst, "max": self.best, "values": list(self.values)}


@dataclass(frozen=True)
class Improvement:
    """How probably a run of the best group beats a run of the second one."""

    metric: str
    better: str
    """Label of the best group."""
    other: str
    probability: float
    low: float
    """Lower end of the 95 % bootstrap interval."""
    high: float

    @classmethod
    def of(
        cls, metric: str, labels: tuple[str, str], strata: Sequence[tuple[Sequence[float], Sequence[float]]]
    ) -> Improvement | None:
        """Of the values of both groups in every environment they share; None if a group has a single one."""
        if min((len(values) for pair in strata for values in pair), default=0) < 2:
            return None
        return cls(metric, *labels, *probability_of_improvement(strata))

    def __str__(self) -> str:
        chance = f"{self.probability:.2f} (95 % interval {self.low:.2f} to {self.high:.2f})"
        return f"{self.metric}: a run of {self.better} beats one of {self.other} with probability {chance}"

    def data(self) -> dict[str, object]:
        """Plain data for `--json`."""
        names: dict[str, object] = {"metric": self.metric, "better": self.better, "other": self.other}
        return names | {"probability": self.probability, "ci95": [self.low, self.high]}
