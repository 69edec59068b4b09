"""The number a trial is judged by, read from the folders of its runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ludus.archive import history
from ludus.errors import ConfigError
from ludus.metrics.names import EVAL_RETURN
from ludus.reports.run_metrics import BEST, FINAL, SHORT
from ludus.reports.statistics import on_grid
from ludus.text import did_you_mean

AREA = "area"
OF_EVALUATIONS = (*FINAL, *BEST, AREA)


def key_of(metric: str) -> str:
    """The column of metrics.jsonl that a metric is read from."""
    return EVAL_RETURN if metric in OF_EVALUATIONS else SHORT.get(metric, metric)


def course(folder: Path, metric: str) -> list[float]:
    """The metric's values while the run trains, one per evaluation (one per row for other metrics)."""
    values = [history.number(row[key_of(metric)]) for row in history.rows(folder, key_of(metric))]
    return list(np.maximum.accumulate(values)) if metric in BEST and values else values


def objective(folder: Path, metric: str, budget: int) -> float:
    """The number of one finished run; NaN if it has none or it is not finite."""
    key = key_of(metric)
    if metric == AREA:
        steps, values = history.curve(folder, key)
        return area(steps, values, budget)
    values = course(folder, metric)
    return values[-1] if values else math.nan


def area(steps: Sequence[float], values: Sequence[float], budget: int) -> float:
    """Mean of an evaluation curve over the budget: before its first point and after its last it stays as it is.

    A run that is good sooner, and may stop there, has more of it.
    """
    if not steps:
        return math.nan
    grid_G = np.linspace(0.0, budget, 1_001)
    curve_G = on_grid(steps, values, grid_G)
    return float(np.nan_to_num(curve_G, nan=values[0]).mean())


def missing(folder: Path, metric: str) -> ConfigError:
    """Why a finished run has no such number."""
    names = history.metric_names(history.sampled(folder, 8))
    if metric in OF_EVALUATIONS:
        remedy = "set training.evaluation.every_steps, or name another metric"
        return ConfigError(f"metric {metric}", "the runs are never evaluated", remedy)
    return ConfigError(f"metric {metric}", "no run writes it", did_you_mean(metric, [*OF_EVALUATIONS, *SHORT, *names]))
