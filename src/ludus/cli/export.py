"""`ludus export`: runs as csv, json, markdown or LaTeX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from ludus import files
from ludus.cli.options import Columns, Filter, GroupBy, Metrics, Runs, RunsDir, Sort, column_names, words
from ludus.errors import of_system
from ludus.reports.compare import compare
from ludus.reports.export import check_format, export_comparison
from ludus.reports.export import export as render
from ludus.runs import query
from ludus.runs.index import Index


def export(
    runs: Runs = None,
    format: Annotated[str, Option("--format", metavar="csv|json|markdown|latex", help="File format.")] = "csv",
    output: Annotated[Path | None, Option("--output", "-o", metavar="FILE", help="Default: the terminal.")] = None,
    columns: Columns = None,
    group_by: Annotated[str | None, GroupBy] = None,
    metrics: Metrics = "reward",
    fragment: Annotated[bool, Option("--fragment", help="LaTeX: only the tabular, for \\\\input.")] = False,
    filter: Filter = None,
    sort: Sort = "started:asc",
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Export runs (default: all); json contains everything. With --group-by: groups with IQM and interval instead."""
    check_format(format)
    records = query.order(Index(runs_dir).pick([*(runs or []), *(filter or [])]), sort)
    if group_by is not None:
        found = compare(records, metrics=words(metrics) or ["reward"], group_by=group_by)
        text = export_comparison(found, format, fragment=fragment)
    else:
        text = render(records, format, column_names(columns), fragment=fragment)
    if output is None:
        print(text, end="")
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(output, text)
    except OSError as error:
        raise of_system(error, str(output)) from None
    print(f"{output}: {len(records)} runs")
