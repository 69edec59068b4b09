"""Figures of a benchmark: learning curves, one panel per core, and return against training speed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.archive import history
from ludus.archive.record import Record
from ludus.bench.memory.results import CoreResult
from ludus.bench.memory.tasks import CORES
from ludus.reports.plots import PALETTE, band, draw_band, panels
from ludus.reports.run_metrics import metric_key
from ludus.reports.svg import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 3
OTHERS = "#C4C4C4"
INK = "#444444"


def colour_of(core: str) -> str:
    """Colour of a core, the same in every figure."""
    return ("#222222", *PALETTE)[list(CORES).index(core) % (len(PALETTE) + 1)]


def learning_curves(task: str, runs: Mapping[str, Sequence[Record]], path: Path) -> None:
    """One panel per core: its runs in colour, the curves of the other cores in grey."""
    bands = {}
    for core, records in runs.items():
        key = metric_key("reward", records)
        if curves := [curve for record in records if (curve := history.curve(record.folder, key))[0]]:
            bands[core] = band(curves)
    columns = min(COLUMNS, len(bands))
    lines = math.ceil(len(bands) / columns)
    size = (2.6 * columns + 0.6, 1.9 * lines + 0.9)
    with panels(path, lines, columns, size, share=True) as (figure, axes):
        for axis in axes.flat[len(bands) :]:
            axis.set_visible(False)
        for axis, (core, drawn) in zip(axes.flat, bands.items(), strict=False):
            for other in bands.values():
                axis.plot(other.steps, other.middle, color=OTHERS, linewidth=0.9, zorder=1)
            draw_band(axis, drawn, colour_of(core))
            axis.set_title(core, color=colour_of(core))
            for threshold in {record.threshold for record in runs[core]} - {None}:
                axis.axhline(threshold, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
            axis.xaxis.set_major_formatter(label)
            axis.set_xlim(left=0)
        figure.suptitle(f"{task}: evaluated return", x=0.02, ha="left", fontweight="bold")
        said = "environment steps; IQM with 95 % interval, thin: single seeds, grey: the other cores, dashed: threshold"
        figure.supxlabel(said, fontsize=8, color="#777777")


def trade_off(found: Sequence[CoreResult], path: Path) -> None:
    """One panel per task: final return (up) over training speed (right)."""
    tasks = list(dict.fromkeys(row.task for row in found))
    with panels(path, 1, len(tasks), (4.2 * len(tasks) + 0.6, 4)) as (_, axes):
        for axis, task in zip(axes[0], tasks, strict=True):
            _panel(axis, [row for row in found if row.task == task])
            axis.set_title(task)
        axes[0][0].set_ylabel("final return, IQM with 95 % interval")


def _panel(axis: Axes, rows: Sequence[CoreResult]) -> None:
    for i, row in enumerate(sorted(rows, key=lambda row: row.speed)):
        above = i % 2 == 0  # so that the labels of neighbours do not overlap
        colour, scores = colour_of(row.core), row.returns
        if len(scores.values) > 1:
            axis.plot([row.speed] * 2, [scores.low, scores.high], color=colour, linewidth=1.2, alpha=0.6, zorder=2)
        axis.scatter([row.speed], [scores.iqm], s=90, color=colour, alpha=0.85, zorder=3)
        axis.annotate(row.core, (row.speed, scores.iqm), xytext=(4, 7) if above else (-4, -7), fontsize=8, color=colour,
                      textcoords="offset points", ha="left" if above else "right", va="bottom" if above else "top",
                      rotation=40, rotation_mode="anchor")  # fmt: skip
    axis.set_xscale("log", subs=[2, 5])
    for ticks in (axis.xaxis.set_major_formatter, axis.xaxis.set_minor_formatter):
        ticks(label)  # the default labels are formulas, which the style does not draw
    axis.margins(0.2)
    axis.set_xlabel("training steps per second of processor time")
