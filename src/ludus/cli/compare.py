"""`ludus compare`: groups of runs side by side, with intervals over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from ludus.cli.options import Filter, GroupBy, Json, Metrics, Runs, RunsDir, words
from ludus.cli.table import Column, painted, print_table, say
from ludus.errors import ConfigError
from ludus.reports.compare import Comparison
from ludus.reports.compare import compare as compare_runs
from ludus.reports.export import comparison_table, export_comparison
from ludus.reports.plots import plot as draw
from ludus.runs.index import Index
from ludus.text import clean, did_you_mean

_WEIGHTS = {"reached": 6, "min": 5, "max": 4, "median": 3, "time": 2, "steps to threshold": 1}


def compare(
    runs: Runs = None,
    metrics: Metrics = "reward",
    group_by: Annotated[str, GroupBy] = "config",
    plot: Annotated[Path | None, Option(metavar="FILE", help="Learning curves as .png, .svg or .pdf.")] = None,
    statistic: Annotated[str, Option(metavar="iqm|mean", help="What the curves show.")] = "iqm",
    filter: Filter = None,
    json: Json = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Compare groups of runs with IQM and 95 % bootstrap interval; runs that differ only in the seed are one group."""
    if statistic not in ("iqm", "mean"):
        raise ConfigError(f"--statistic {statistic}", "is not known", did_you_mean(statistic, ["iqm", "mean"]))
    records = Index(runs_dir).pick([*(runs or []), *(filter or [])])
    found = compare_runs(records, metrics=words(metrics) or ["reward"], group_by=group_by)
    if plot is not None:
        draw(found, plot, statistic=statistic)
    if json:
        print(export_comparison(found, "json"), end="")
        return
    _print(found)
    if plot is not None:
        say(f"\nplot {plot}")


def _print(found: Comparison) -> None:
    table = comparison_table(found)
    letters = [chr(ord("A") + i) if i < 26 else str(i + 1) for i in range(len(found.groups))]
    shapes = zip(table.head, table.right, strict=True)
    columns = [Column(""), *(Column(title, right, _WEIGHTS.get(title, 0)) for title, right in shapes)]
    print_table(columns, [[letters[i % len(letters)], *row] for i, row in enumerate(table.rows)])
    if found.differences:
        print()
        different = [[path, *values] for path, values in found.differences.items()]
        print_table([Column(head) for head in ("different config", *letters)], different)
    for note in found.notes:
        say(painted(f"note: {clean(note)}", "yellow"))
