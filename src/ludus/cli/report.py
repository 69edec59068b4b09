"""`ludus report`: report.md and report.html of a run."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

from typer import Option

from ludus.archive.index import Index
from ludus.archive.run_plugins import load_if_allowed
from ludus.archive.store import RunFolder
from ludus.cli.options import Plugin, Run, RunsDir
from ludus.errors import ResourceError
from ludus.reports.report import write_report


def report(
    run: Run = "@last",
    open: Annotated[bool, Option("--open", help="Open it in the browser.")] = False,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Write the report of a run again and print its path."""
    folder = Index(runs_dir).get(run).folder
    load_if_allowed(RunFolder(folder), plugin)
    try:
        path = write_report(folder)
    except OSError as error:
        raise ResourceError(str(folder), f"no report: {error.strerror}", "check space and permissions") from None
    print(path)
    if open:
        webbrowser.open(path.resolve().as_uri())
