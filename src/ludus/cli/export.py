"""`ludus export`: runs as csv, json, markdown or LaTeX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ludus.cli.compare import Runs
from ludus.cli.listing import Filter, RunsDir, split_columns


def export(
    runs: Runs = None,
    format: Annotated[str, typer.Option("--format", metavar="csv|json|markdown|latex", help="Which.")] = "csv",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: the terminal.")
    ] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B,...", help="Fields or config paths.")] = None,
    group_by: Annotated[
        str | None,
        typer.Option(
            "--group-by", "-g", metavar="config|spec|FIELD", help="Groups with IQM and interval instead of runs."
        ),
    ] = None,
    metrics: Annotated[
        str, typer.Option("--metrics", "-m", metavar="A,B", help="With --group-by: of these metrics.")
    ] = "reward",
    fragment: Annotated[bool, typer.Option("--fragment", help="LaTeX: only the tabular, for \\\\input.")] = False,
    filter: Filter = None,
    sort: Annotated[
        str, typer.Option("--sort", "-s", metavar="FIELD[:asc|desc]", help="Order of the runs.")
    ] = "started:asc",
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Export runs (default: all) for spreadsheets, scripts and papers; json is everything known about them."""
    from ludus import files
    from ludus.errors import of_system
    from ludus.reports.compare import compare
    from ludus.reports.export import check_format, export_comparison
    from ludus.reports.export import export as render
    from ludus.runs import query
    from ludus.runs.index import Index

    check_format(format)
    records = query.order(Index(runs_dir).pick([*(runs or []), *(filter or [])]), sort)
    if group_by is not None:
        names = [name.strip() for name in metrics.split(",") if name.strip()] or ["reward"]
        text = export_comparison(compare(records, metrics=names, group_by=group_by), format, fragment=fragment)
    else:
        text = render(records, format, split_columns(columns), fragment=fragment)
    if output is None:
        print(text, end="")
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(output, text)
    except OSError as error:
        raise of_system(error, str(output)) from None
    print(f"{output}: {len(records)} runs")
