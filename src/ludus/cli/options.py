"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ludus.errors import ConfigError

Run = Annotated[str, typer.Argument(help="Run id, unique prefix, @last or @best.")]
Runs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN|GLOB|FILTER]...", help="Ids, prefixes, @last, @best, 'cart*', algorithm=ppo; default: all."
    ),
]
Filter = Annotated[
    list[str] | None,
    typer.Option("--filter", "-f", metavar="KEY=VALUE", help="Only matching runs: = != > >= < <= or ~ (regex)."),
]
GroupBy = typer.Option(
    "--group-by", "-g", metavar="config|spec|FIELD", help="What a group is; config: all but the seed."
)
Metrics = Annotated[
    str, typer.Option("--metrics", "-m", metavar="A,B", help="reward, loss, entropy, ... or the name of a metric.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunsDir = Annotated[Path, typer.Option(metavar="DIR", help="Folder of all runs.")]


def words(text: str) -> list[str]:
    """The items of `a,b,c`."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(option: str, text: str, example: str, *, least: int = 1) -> list[int]:
    """The different whole numbers of `1,2,3`, each at least `least`."""
    found = [int(word) if word.replace("_", "").isdecimal() else -1 for word in words(text)]
    if min(found, default=-1) < least or len(set(found)) < len(found):
        raise ConfigError(f"{option} {text}", "not a list of different whole numbers", f"write {option} {example}")
    return found
