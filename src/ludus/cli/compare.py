"""`ludus compare`: groups of runs side by side, with intervals over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from ludus.archive.index import Index
from ludus.cli.options import Filter, GroupBy, Json, Metrics, Runs, RunsDir, words
from ludus.cli.table import Column, painted, print_table, say
from ludus.errors import ConfigError
from ludus.reports.compare import Comparison
from ludus.reports.compare import compare as compare_runs
from ludus.reports.export import comparison_table, export_comparison
from ludus.reports.plots import BANDS, STATISTICS
from ludus.reports.plots import plot as draw
from ludus.reports.run_metrics import DEFAULT
from ludus.text import clean, did_you_mean

_WEIGHTS = {"reached": 6, "min": 5, "max": 4, "median": 3, "time": 2, "steps to threshold": 1}


def compare(
    runs: Runs = None,
    metrics: Metrics = "final,best",
    group_by: Annotated[str, GroupBy] = "config",
    plot: Annotated[Path | None, Option(metavar="FILE", help="Learning curves as .png, .svg or .pdf.")] = None,
    statistic: Annotated[str, Option(metavar="iqm|mean", help="What the curves show.")] = "iqm",
    band: Annotated[str, Option(metavar="interval|range", help="What the bands show.")] = "interval",
    filter: Filter = None,
    json: Json = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Compare groups of runs with IQM and 95 % bootstrap interval; runs that differ only in the seed are one group."""
    for option, value, known in (("--statistic", statistic, STATISTICS), ("--band", band, BANDS)):
        if value not in known:
            raise ConfigError(f"{option} {value}", "is not known", did_you_mean(value, known))
    records = Index(runs_dir).pick([*(runs or []), *(filter or [])])
    found = compare_runs(records, metrics=words(metrics) or DEFAULT, group_by=group_by)
    if plot is not None:
        draw(found, plot, statistic=statistic, around=band)
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
    if found.improvement is not None:
        say(f"\n{clean(found.improvement, 400)}")
    for note in found.notes:
        say(painted(f"note: {clean(note, 1000)}", "yellow"))
