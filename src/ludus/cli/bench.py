"""`ludus bench`: measure speed on this machine, and compare memory cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ludus.cli.bench_memory import memory
from ludus.cli.options import Json, numbers, words
from ludus.errors import ConfigError

if TYPE_CHECKING:
    from ludus.bench.fps import Speed

app = typer.Typer(rich_markup_mode=None)
app.command()(memory)


@app.callback()
def bench() -> None:
    """Measure speed, and compare memory cores."""


@app.command()
def env(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID ...]", help="Ids or Env:variant; default: one of each suite.")
    ] = None,
    num_envs: Annotated[str, typer.Option(metavar="N[,N...]", help="Numbers of environments.")] = "1,8,16",
    backends: Annotated[
        str, typer.Option(metavar="NAME[,NAME...]", help="Which backends.")
    ] = "sync,async,native,envpool",
    seconds: Annotated[float, typer.Option(min=0.01, help="Time for each measurement, after a warm-up.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Random-action steps per second by backend and number of environments, bare and as stored rollouts."""
    from ludus.bench.fps import measure
    from ludus.checks.trial import environment
    from ludus.cli.table import Column, print_table

    names, counts = _names(backends), numbers("--num-envs", num_envs, "1,8,16")
    rows: list[Speed] = []
    for id in ids or _one_of_each():
        cfg = environment(id)
        rows += [measure(cfg, backend, count, seconds) for backend in names for count in counts]
    if as_json:
        import json

        print(json.dumps([row._asdict() for row in rows], indent=2))
        return
    columns = [Column("environment"), Column("backend"), *(Column(name, right=True) for name in _NUMBERS), Column("")]
    print_table(columns, [_cells(row) for row in rows])


_NUMBERS = ("environments", "steps/s", "rollout steps/s")


def _cells(row: Speed) -> list[str]:
    rates = ["" if rate is None else f"{rate:,.0f}" for rate in (row.steps, row.rollout)]
    return [row.id, row.backend, str(row.num_envs), *rates, row.problem]


def _names(text: str) -> list[str]:
    from ludus.bench.fps import BACKENDS
    from ludus.text import did_you_mean

    for name in words(text):
        if name not in BACKENDS:
            raise ConfigError(f"--backends {text}", f"'{name}' is no backend", did_you_mean(name, BACKENDS))
    return words(text)


def _one_of_each() -> list[str]:
    """The first environment of every installed suite."""
    from ludus.envs.facts import shipped

    found: dict[str, str] = {}
    for entry in shipped():
        if entry.suite.installed:
            found.setdefault(entry.suite.title, entry.name)
    return list(found.values())
