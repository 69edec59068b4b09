"""Runs that differ by their seed alone as one curve with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ludus.archive.record import Record
from ludus.inspector.curves import Curves
from ludus.reports.compare import compare
from ludus.reports.statistics import bootstrap_band, iqm, on_grid

POINTS, RESAMPLES = 200, 500


def bands(records: Sequence[Record], curves: Curves, metric: str, axis: str) -> list[dict[str, Any]]:
    """Of each group of seeds: interquartile mean and 95 % bootstrap interval, as far as all of its runs go."""
    found = []
    for group in compare(records).groups:
        runs = {run.id: curves.points(run.id, metric, [axis]) for run in group.runs}
        drawn = {id: (x, y) for id, (x, y) in runs.items() if x}
        if not drawn:
            continue
        low, high = max(min(x) for x, _ in drawn.values()), min(max(x) for x, _ in drawn.values())
        grid = np.linspace(low, max(high, low), POINTS)
        values_NG = np.stack([on_grid(x, y, grid) for x, y in drawn.values()])
        lower, upper = bootstrap_band([values_NG], iqm, RESAMPLES)
        line = {"x": grid.tolist(), "y": iqm(values_NG, axis=0).tolist(), "low": lower.tolist(), "high": upper.tolist()}
        found.append({"label": group.label, "runs": list(drawn), **line})
    return found
