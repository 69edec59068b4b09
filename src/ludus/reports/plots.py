"""Draws learning curves of groups of runs over environment steps."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ludus import files
from ludus.archive import history
from ludus.errors import ConfigError, MissingExtra
from ludus.reports.columns import NUMBERS
from ludus.reports.compare import Comparison, RunGroup
from ludus.reports.run_metrics import BEST, FINAL, metric_key
from ludus.reports.statistics import bootstrap_band, iqm, on_grid
from ludus.reports.svg import label
from ludus.text import clean
from ludus.types import Array

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A6FB3", "#6B6B6B")
"""Okabe and Ito 2008, without yellow, which is hard to see on white; colour-blind readers can tell them apart."""
STATISTICS: dict[str, Callable[..., Array]] = {"iqm": iqm, "mean": np.mean}
BANDS = {"interval": "with 95 % bootstrap interval", "range": "with smallest and largest value"}
_LINE = 76
"""Characters of a line of the legend."""
_GRID = 200
_RESAMPLES = 500


class Band(NamedTuple):
    """The curve of a group: a statistic over its runs, and the 95 % bootstrap interval or the range around it."""

    steps: Array
    middle: Array
    low: Array
    high: Array
    until: float
    """End of the shortest run; after it that run counts with its last value."""
    curves: Sequence[tuple[Sequence[float], Sequence[float]]]


def band(
    curves: Sequence[tuple[Sequence[float], Sequence[float]]], statistic: str = "iqm", around: str = "interval"
) -> Band:
    """The band of some curves, from where all of them have begun to the end of the longest."""
    start, end = max(steps[0] for steps, _ in curves), max(steps[-1] for steps, _ in curves)
    steps_G = np.linspace(min(start, end), end, _GRID)
    values_NG = np.stack([on_grid(steps, values, steps_G) for steps, values in curves])
    function = STATISTICS[statistic]
    middle_G = function(values_NG, axis=0)
    if around == "range" or len(curves) == 1:
        low_G, high_G = values_NG.min(axis=0), values_NG.max(axis=0)
    else:
        low_G, high_G = bootstrap_band([values_NG], function, _RESAMPLES)
    return Band(steps_G, middle_G, low_G, high_G, min(steps[-1] for steps, _ in curves), curves)


def plot(comparison: Comparison, path: Path, *, statistic: str = "iqm", around: str = "interval") -> Path:
    """Draw every curve of a comparison into a .png, .svg or .pdf file, one panel each."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"--plot {path}", "is not a format of figures", "use .png, .svg or .pdf")
    records = [record for group in comparison.groups for record in group.runs]
    keys = {metric: metric_key(metric, records) for metric in comparison.metrics}
    drawn = {key: metric for metric, key in keys.items() if key not in NUMBERS}  # final and best have one curve
    if not drawn:
        raise ConfigError(f"--plot {path}", "none of the metrics has a curve", "use --metrics reward")
    if not any(history.curve(record.folder, key)[0] for key in drawn for record in records):
        problem = f"no run has a finite point of {clean(', '.join(drawn), 80)}"
        raise ConfigError(f"--plot {path}", problem, "train them longer, or name another metric")
    with panels(path, 1, len(drawn), (6.8 if len(drawn) == 1 else 5.6 * len(drawn), 4)) as (figure, axes):
        for axis, (key, metric) in zip(axes[0], drawn.items(), strict=True):
            _draw(axis, comparison, metric, key, statistic, around)
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.06)
        _legend(figure, axes[0])
    return path


@contextmanager
def panels(
    path: Path, rows: int, columns: int, size: tuple[float, float], *, share: bool = False
) -> Iterator[tuple[Figure, Array]]:
    """A figure and its axes, to be drawn without a window; it is written without a date: same runs, same file."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("plot", "report") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    kind, buffer = path.suffix[1:].lower(), io.BytesIO()
    dateless = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with plt.rc_context(fname=Path(__file__).parent / "assets" / "plots.mplstyle"):
        figure, axes = plt.subplots(
            rows, columns, sharex=share, sharey=share, squeeze=False, figsize=size, layout="constrained"
        )
        yield figure, axes
        figure.savefig(buffer, format=kind, metadata=dateless)
        plt.close(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(path, buffer.getvalue())


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    found: dict[str, Artist] = {}
    for axis in axes:
        found.update({label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)})
    longest = max((len(line) for name in found for line in name.splitlines()), default=0)
    columns = max(1, min(len(found), int(figure.get_figwidth() * 11 / (longest + 6))))
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns, frameon=False,
                  handlelength=1.5, columnspacing=1.8)  # fmt: skip


def _draw(axis: Axes, comparison: Comparison, metric: str, key: str, statistic: str, around: str) -> None:
    bands = []
    for i, group in enumerate(comparison.groups):
        curves = [curve for record in group.runs if (curve := history.curve(record.folder, key))[0]]
        if curves:
            bands.append(band(curves, statistic, around))
            name = textwrap.fill(f"{clean(group.label, 4 * _LINE)} (n={len(curves)})", _LINE)
            style = "-" if i < len(PALETTE) else "-."
            draw_band(axis, bands[-1], PALETTE[i % len(PALETTE)], style, name)
    _threshold(axis, comparison.groups, metric)
    axis.set_xlabel("environment steps")
    axis.xaxis.set_major_formatter(label)
    axis.margins(x=0.03)
    axis.set_xlim(left=0)
    many = any(len(drawn.curves) > 1 for drawn in bands)
    kind = "IQM" if statistic == "iqm" else "mean"
    below = [
        clean(comparison.common, 60),
        f"{kind} over seeds {BANDS[around]}" if many else "",
        "dashed: some runs have ended" if any(drawn.until < drawn.steps[-1] for drawn in bands) else "",
    ]
    said = ", ".join(text for text in below if text)
    title = clean(key, 60)
    if metric in (*FINAL, *BEST):
        title = "evaluated return" if key.startswith("val/") else "training return"
    axis.set_title(title, pad=20 if said else 8)
    axis.text(0, 1.025, said, transform=axis.transAxes, ha="left", va="bottom", fontsize=8, color="#777777")


def draw_band(axis: Axes, drawn: Band, colour: str, style: str = "-", name: str | None = None) -> None:
    """Runs, interval and statistic of a group; dashed after the end of its shortest run."""
    whole = drawn.steps <= drawn.until
    rest = drawn.steps >= drawn.steps[whole][-1] if whole.any() else ~whole
    for steps, values in drawn.curves if len(drawn.curves) > 1 else ():
        axis.plot(steps, values, color=colour, linewidth=0.6, alpha=0.28, zorder=2)
    axis.fill_between(drawn.steps, drawn.low, drawn.high, color=colour, alpha=0.16, linewidth=0, zorder=1)
    axis.plot(drawn.steps[whole], drawn.middle[whole], style, color=colour, linewidth=2, label=name, zorder=3)
    axis.plot(drawn.steps[rest], drawn.middle[rest], color=colour, linewidth=1.4, linestyle=(0, (2, 1.6)), zorder=3)
    axis.plot(drawn.steps[-1:], drawn.middle[-1:], color=colour, marker="o", markersize=5, zorder=4)


def _threshold(axis: Axes, groups: Sequence[RunGroup], metric: str) -> None:
    known = {record.threshold for group in groups for record in group.runs}
    if metric not in (*FINAL, *BEST, "train_reward") or len(known) != 1 or None in known:
        return
    value = float(next(iter(known)) or 0)
    if abs(value) >= history.LARGEST:
        return
    axis.axhline(value, color="#444444", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axis.annotate(f"solved\nat {value:g}", (1, value), xycoords=("axes fraction", "data"), xytext=(5, 0),
                  textcoords="offset points", va="center", fontsize=8, color="#444444")  # fmt: skip
