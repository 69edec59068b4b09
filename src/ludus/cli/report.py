"""`ludus report`: report.md and report.html of a run."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

from typer import Option

from ludus.archive.index import Index
from ludus.archive.run_plugins import load_if_allowed
from ludus.archive.store import RunFolder
from ludus.cli.options import Json, Plugin, Run, RunsDir
from ludus.errors import ResourceError
from ludus.files import to_json
from ludus.reports.report import write_report


def report(
    run: Run = "@last",
    open: Annotated[bool, Option("--open", help="Open it in the browser.")] = False,
    json: Json = False,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Write the report of a run again and print its path."""
    found = Index(runs_dir).get(run)
    folder = found.folder
    load_if_allowed(RunFolder(folder), plugin)
    try:
        path = write_report(folder)
    except OSError as error:
        raise ResourceError(str(folder), f"no report: {error.strerror}", "check space and permissions") from None
    address = path.resolve().as_uri()
    if json:
        paths = {"html": str(path), "markdown": str(path.with_suffix(".md")), "address": address}
        print(to_json({"run": found.id, **paths}), end="")
    else:
        print(path if open else f"{path}\nopen it with --open, or in a browser: {address}")
    if open:
        webbrowser.open(address)
