"""`ludus compare`: groups of runs side by side, with intervals over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ludus.cli.listing import Filter, Json, RunsDir

if TYPE_CHECKING:
    from ludus.reports.compare import Comparison

_WEIGHTS = {"reached": 6, "min": 5, "max": 4, "median": 3, "time": 2, "steps to threshold": 1}
Runs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN|GLOB|FILTER]...", help="Ids, prefixes, @last, @best, 'cart*', algorithm=ppo; default: all."
    ),
]


def compare(
    runs: Runs = None,
    metrics: Annotated[
        str, typer.Option("--metrics", "-m", metavar="A,B", help="reward, loss, entropy, ... or a whole name.")
    ] = "reward",
    group_by: Annotated[
        str, typer.Option("--group-by", "-g", metavar="config|spec|FIELD", help="config: all but the seed.")
    ] = "config",
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Learning curves as .png, .svg or .pdf.")] = None,
    statistic: Annotated[str, typer.Option(metavar="iqm|mean", help="Of the plotted curves.")] = "iqm",
    filter: Filter = None,
    json: Json = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Compare runs: those that differ only in the seed are one group, with IQM and 95 % bootstrap interval."""
    from ludus.cli.table import say
    from ludus.errors import ConfigError
    from ludus.reports.compare import compare as compare_runs
    from ludus.reports.export import export_comparison
    from ludus.runs.index import Index
    from ludus.text import did_you_mean

    if statistic not in ("iqm", "mean"):
        raise ConfigError(f"--statistic {statistic}", "is not known", did_you_mean(statistic, ["iqm", "mean"]))
    names = [name.strip() for name in metrics.split(",") if name.strip()] or ["reward"]
    found = compare_runs(Index(runs_dir).pick([*(runs or []), *(filter or [])]), metrics=names, group_by=group_by)
    drawn = None
    if plot is not None:
        from ludus.reports.plots import plot as draw

        drawn = draw(found, plot, statistic=statistic)
    if json:
        print(export_comparison(found, "json"), end="")
        return
    _print(found)
    if drawn is not None:
        say(f"\nplot {drawn}")


def _print(found: Comparison) -> None:
    from ludus.cli.table import Column, painted, print_table, say
    from ludus.reports.export import comparison_table
    from ludus.text import clean

    table = comparison_table(found)
    letters = [_letter(i) for i in range(len(found.groups))]
    shapes = zip(table.head, table.right, strict=True)
    columns = [Column(""), *(Column(title, right, _WEIGHTS.get(title, 0)) for title, right in shapes)]
    print_table(columns, [[letters[i % len(letters)], *row] for i, row in enumerate(table.rows)])
    if found.differences:
        print()
        different = [[path, *values] for path, values in found.differences.items()]
        print_table([Column(head) for head in ("different config", *letters)], different)
    for note in found.notes:
        say(painted(f"note: {clean(note)}", "yellow"))


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else str(index + 1)
