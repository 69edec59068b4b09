"""`ludus smoke`: does every shipped config still work?"""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from ludus.errors import ConfigError

_STYLES = {"PASS": "green", "FAIL": "red", "MISSING": "yellow"}


class Kind(StrEnum):
    """What is tried with each config."""

    train = "train"
    env = "env"


def smoke(
    kind: Annotated[Kind, typer.Argument(help="train: train briefly and evaluate once; env: take random actions.")],
    specs: Annotated[
        list[str] | None, typer.Argument(metavar="[SPEC ...]", help="Env:variant or any environment id; default: all.")
    ] = None,
    filter: Annotated[str | None, typer.Option("--filter", "-f", metavar="TEXT", help="Only names with TEXT.")] = None,
    skip: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="No names with TEXT; repeatable.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="Only the first N.")] = None,
    timesteps: Annotated[int, typer.Option("--timesteps", min=1, metavar="N", help="Environment steps of each.")] = 100,
    video: Annotated[bool, typer.Option("--video", help="Record each environment instead, and play it back.")] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, metavar="N", help="Processes; default: one per core.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Time limit of each.")] = 180,
    strict: Annotated[bool, typer.Option("--strict", help="A suite that is not installed is a failure.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Run every Env:variant briefly: small rollouts, one short evaluation, no video, no W&B."""
    from ludus.checks import smoke as engine
    from ludus.cli.table import painted, say

    if specs and filter:
        raise ConfigError(f"--filter {filter}", "there are names already", "give one or the other")
    chosen = specs[:limit] if specs else engine.targets(filter, limit, skip or [])
    if not chosen:
        raise ConfigError(f"--filter {filter}", "no name contains it", "see ludus train --list-envs")
    width, results = max(map(len, chosen)), []
    tried = engine.run(
        "video" if video else kind.value, chosen, timesteps=timesteps, timeout=timeout, jobs=jobs or os.cpu_count() or 1
    )
    for result in tried:
        results.append(result)
        if not as_json:
            status = painted(f"{result.status:<7}", _STYLES[result.status])
            say(f"{status}  {result.spec:<{width}}  {result.seconds:5.1f} s  {result.detail}".rstrip())
            sys.stdout.flush()  # a pipe would hold the lines back
    if as_json:
        print(json.dumps([{**result._asdict(), "seconds": round(result.seconds, 2)} for result in results], indent=2))
    else:
        say(engine.summary(results))
    return engine.exit_code(results, strict=strict)
