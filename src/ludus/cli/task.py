"""`ludus task`: the playbooks, step-by-step guides for recurring work on a code base."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

import typer

from ludus.cli.options import Json

app = typer.Typer(rich_markup_mode=None)


@app.callback()
def task() -> None:
    """Playbooks for recurring tasks: auditing, cleaning up, tuning, documenting, testing."""


@app.command("list")
def list_tasks(json: Json = False) -> None:
    """List all tasks with the line that says what each is for."""
    from ludus.files import to_json

    purposes = {name: text.split("\n\n")[1] for name, text in playbooks().items()}
    width = max(map(len, purposes))
    lines = "".join(f"{name:<{width}}  {purpose}\n" for name, purpose in purposes.items())
    print(to_json(purposes) if json else lines, end="")


@app.command()
def show(name: Annotated[str, typer.Argument(metavar="NAME", help="A task of `ludus task list`.")]) -> None:
    """Print the playbook of a task."""
    from ludus.errors import ConfigError
    from ludus.text import did_you_mean

    known = playbooks()
    if name not in known:
        raise ConfigError(name, "no such task", did_you_mean(name, known))
    print(known[name], end="")


def playbooks() -> dict[str, str]:
    """Name -> text of every playbook."""
    found = (entry for entry in (files("ludus") / "playbooks").iterdir() if entry.name.endswith(".md"))
    return {entry.name.removesuffix(".md"): entry.read_text() for entry in sorted(found, key=lambda entry: entry.name)}
