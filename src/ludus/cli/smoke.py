"""`ludus smoke`: does everything that is shipped still work?"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ludus.checks.smoke import Kind, Result

app = typer.Typer(rich_markup_mode=None)

Specs = Annotated[list[str] | None, typer.Argument(metavar="[SPEC ...]", help="Env:variant or any environment id.")]
Filter = Annotated[str | None, typer.Option("--filter", "-f", metavar="TEXT", help="Only those whose name holds it.")]
Skip = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Not those whose name holds it; repeatable.")]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="The first N.")]
Timesteps = Annotated[int, typer.Option("--timesteps", min=1, metavar="N", help="Environment steps of each.")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, metavar="N", help="At a time; default: one per core.")]
Timeout = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Longest time for one.")]
Strict = Annotated[bool, typer.Option("--strict", help="What is not installed counts as a failure.")]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


@app.command()
def train(
    specs: Specs = None,
    filter: Filter = None,
    skip: Skip = None,
    limit: Limit = None,
    timesteps: Timesteps = 100,
    jobs: Jobs = None,
    timeout: Timeout = 180,
    strict: Strict = False,
    as_json: Json = False,
) -> int:
    """Train every Env:variant for a moment: small rollouts, one short evaluation, no video, no W&B."""
    return _run("train", _chosen(specs, filter, skip, limit), timesteps, jobs, timeout, strict, as_json)


@app.command()
def env(
    specs: Specs = None,
    filter: Filter = None,
    skip: Skip = None,
    limit: Limit = None,
    timesteps: Timesteps = 100,
    video: Annotated[bool, typer.Option("--video", help="Record each one instead, and play it back.")] = False,
    jobs: Jobs = None,
    timeout: Timeout = 180,
    strict: Strict = False,
    as_json: Json = False,
) -> int:
    """Random actions in the environment of every Env:variant; observations must stay inside their space."""
    return _run(
        "video" if video else "env", _chosen(specs, filter, skip, limit), timesteps, jobs, timeout, strict, as_json
    )


def _chosen(specs: list[str] | None, filter: str | None, skip: list[str] | None, limit: int | None) -> list[str]:
    from ludus.checks.smoke import targets
    from ludus.errors import ConfigError

    if specs and filter:
        raise ConfigError(f"--filter {filter}", "there are names already", "give one or the other")
    found = specs[:limit] if specs else targets(filter, limit, skip or [])
    if not found:
        raise ConfigError(f"--filter {filter}", "nothing has that in its name", "see ludus train --list-envs")
    return found


def _run(
    kind: Kind, specs: list[str], timesteps: int, jobs: int | None, timeout: float, strict: bool, as_json: bool
) -> int:
    from ludus.checks import smoke
    from ludus.cli.table import painted, say

    width, results = max(map(len, specs)), []
    for result in smoke.run(kind, specs, timesteps=timesteps, timeout=timeout, jobs=jobs or os.cpu_count() or 1):
        results.append(result)
        if not as_json:
            status = painted(f"{result.status:<7}", _STYLES[result.status])
            say(f"{status}  {result.spec:<{width}}  {result.seconds:5.1f} s  {result.detail}".rstrip())
            sys.stdout.flush()  # somebody may be waiting behind a pipe
    if as_json:
        _print_json(results)
    else:
        say(smoke.summary(results))
    return smoke.exit_code(results, strict=strict)


def _print_json(results: list[Result]) -> None:
    import json

    print(json.dumps([{**result._asdict(), "seconds": round(result.seconds, 2)} for result in results], indent=2))


_STYLES = {"PASS": "green", "FAIL": "red", "MISSING": "yellow"}
