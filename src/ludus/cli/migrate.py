"""`ludus migrate PATH`: bring a config or a run folder of an older version up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def migrate(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A config file (.yaml, .json) or a run folder.")],
    yes: Annotated[bool, typer.Option("--yes", help="Write; the old file stays beside it as .bak.")] = False,
) -> None:
    """Show what an older file would become; --yes writes it."""
    from ludus.runs.migrate import plan

    for change in plan(path):
        if not change.needed:
            print(f"{change.path} is of the current version already")
            continue
        print(change.diff(), end="")
        if yes:
            print(f"written; the old file is {change.write()}")
        else:
            print(f"nothing is written; ludus migrate {path} --yes does it")
