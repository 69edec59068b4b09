"""`ludus verify RUN`: prove that a run can be repeated to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ludus.cli.plugin import Plugin, load_plugins


def verify(
    run: Annotated[str, typer.Argument(help="Run id, unique prefix or @last.")],
    plugin: Plugin = None,
    runs_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where runs are kept.")] = Path("runs"),
) -> int:
    """Train again from the run's config and compare every metric and the final state."""
    from ludus.runs.store import RunFolder
    from ludus.verify import verify as verify_run

    load_plugins(plugin)
    folder = RunFolder.load(runs_dir, run)
    print(f"{folder.id}: training again and comparing", flush=True)
    verdict = verify_run(folder, announce=lambda line: print(line, flush=True))
    if not verdict.identical:
        print(f"differs: {verdict.difference or 'the final weights'}")
        return 3
    also = " and the final state" if verdict.weights else ""
    print(f"identical: {verdict.rows:,} rows up to step {verdict.env_steps:,}{also}")
    return 0
