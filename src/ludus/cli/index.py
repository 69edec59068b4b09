"""`ludus index`: the cache behind `ludus list`."""

from __future__ import annotations

from pathlib import Path

from typer import Typer

from ludus.cli.options import RunsDir
from ludus.runs.index import Index

app = Typer(rich_markup_mode=None)


@app.callback()
def index() -> None:
    """The index of runs (runs/index.sqlite): a cache of the run folders that updates itself."""


@app.command()
def rebuild(runs_dir: RunsDir = Path("runs")) -> None:
    """Build the index again from the run folders."""
    there = Index(runs_dir)
    print(f"{there.path}: {there.rebuild()} runs")
