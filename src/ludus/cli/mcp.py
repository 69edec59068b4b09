"""`ludus mcp`: a server for coding agents, over standard input and output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from ludus.cli.options import RunsDir


def mcp(
    allow_train: Annotated[bool, Option("--allow-train", help="Agents may start and stop trainings.")] = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Serve the runs of a folder to a coding agent: it lists, shows, compares and plots; see docs/mcp.md."""
    from ludus.mcp.server import make_server

    make_server(runs_dir.absolute(), allow_train=allow_train).run("stdio")
