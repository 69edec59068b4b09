"""`ludus wandb`: the dashboard of a W&B project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option, Typer

from ludus.cli.options import RunsDir
from ludus.errors import ConfigError
from ludus.files import to_json

app = Typer(help="Weights & Biases.", rich_markup_mode=None)

_LATEST = "Show only the newest run of the runs folder."


@app.callback()
def wandb() -> None:
    """Weights & Biases."""


@app.command()
def dashboard(
    entity: Annotated[str | None, Option(metavar="NAME", help="Team or user; default: yours.")] = None,
    project: Annotated[str, Option(metavar="NAME", help="The project.")] = "ludus",
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the one there is.")] = False,
    select_latest: Annotated[bool, Option("--select-latest", help=_LATEST)] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the specification as JSON; needs no key.")] = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Make a workspace with the curves of Ludus in a project, once; a second time it is only found."""
    from ludus.archive.index import Index
    from ludus.metrics.dashboard import save, spec_of, workspace

    newest = next((record.id for record in Index(runs_dir).records()), None) if select_latest else None
    if select_latest and newest is None:
        raise ConfigError("--select-latest", f"there is no run in {runs_dir}/", "train one first")
    if dry_run:
        print(to_json(spec_of(workspace(entity or "entity", project, newest))), end="")
        return
    view = save(entity, project, overwrite=overwrite, run=newest)
    state = "made" if view.made else "replaced" if view.replaced else "is there already; --overwrite replaces it"
    print(f"{view.url}\n{state}")
