"""What a good return costs: every core by its speed and its return, one panel per task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ludus.bench.memory.results import Row
from ludus.runs.plots import PALETTE, STYLE, pyplot, save


def trade_off(found: Sequence[Row], path: Path) -> Path:
    """Up is better, right is faster, a larger dot needs more memory."""
    plt = pyplot()
    tasks = list(dict.fromkeys(row.task for row in found))
    cores = sorted({row.core for row in found})
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(tasks), figsize=(4.6 * len(tasks) + 0.6, 4), squeeze=False,
                                    layout="constrained")  # fmt: skip
        for axis, task in zip(axes[0], tasks, strict=True):
            _panel(axis, [row for row in found if row.task == task], cores)
            axis.set_title(task)
        save(figure, path)
        plt.close(figure)
    return path


def _panel(axis: Any, rows: Sequence[Row], cores: Sequence[str]) -> None:
    most = max(row.memory for row in rows)
    for row in rows:
        colour, scores = PALETTE[cores.index(row.core) % len(PALETTE)], row.returns
        if len(scores.values) > 1:
            axis.plot([row.speed] * 2, [scores.low, scores.high], color=colour, linewidth=1.2, alpha=0.6, zorder=2)
        axis.scatter([row.speed], [scores.iqm], s=30 + 120 * row.memory / most, color=colour, alpha=0.85, zorder=3)
        axis.annotate(row.core, (row.speed, scores.iqm), xytext=(7, 5), textcoords="offset points", fontsize=8)
    axis.set_xscale("log")
    axis.margins(0.18)
    axis.set_xlabel("training steps per second")
    axis.set_ylabel("final return, IQM with 95 % interval")
