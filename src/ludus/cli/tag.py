"""`ludus tag`: label runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from ludus.cli.options import RunsDir
from ludus.cli.table import say
from ludus.runs.index import Index
from ludus.runs.tags import retag
from ludus.text import clean


def tag(
    run: Annotated[str, Argument(help="Run id, unique prefix, @last, @best or a glob.")],
    changes: Annotated[list[str], Argument(metavar="[+]LABEL|-LABEL...", help="Add, or with - remove.")],
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Add and remove labels: ludus tag @last +paper -draft. A run tagged `keep` survives every cleanup."""
    for record in Index(runs_dir).pick([run]):
        say(f"{record.id}: {clean(', '.join(retag(record, changes)) or 'no tags')}")


tag.context_settings = {"ignore_unknown_options": True}  # type: ignore[attr-defined]  # `-draft` is a label, no option
