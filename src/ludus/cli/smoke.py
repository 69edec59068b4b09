"""`ludus smoke`: does every shipped config still work?"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Literal

from typer import Argument, Option

from ludus.checks import smoke as engine
from ludus.cli.options import Jobs, Json, Limit, Plugin
from ludus.cli.table import painted, say
from ludus.errors import ConfigError
from ludus.files import to_json
from ludus.plugins import load_plugins

_STYLES = {"PASS": "green", "FAIL": "red", "MISSING": "yellow"}
_KINDS = "train: train briefly and evaluate once; env: take random actions."


def smoke(
    kind: Annotated[Literal["train", "env"], Argument(help=_KINDS)],
    specs: Annotated[list[str] | None, Argument(help="Env:variant or any environment id; default: all.")] = None,
    filter: Annotated[str | None, Option("--filter", "-f", metavar="TEXT", help="Only names with TEXT.")] = None,
    skip: Annotated[list[str] | None, Option(metavar="TEXT", help="No names with TEXT; repeatable.")] = None,
    limit: Limit = None,
    timesteps: Annotated[int, Option("--timesteps", min=1, metavar="N", help="Environment steps of each.")] = 100,
    video: Annotated[bool, Option("--video", help="Record each environment instead, and play it back.")] = False,
    jobs: Jobs = None,
    timeout: Annotated[float, Option(min=1, metavar="SECONDS", help="Time limit of each.")] = 180,
    strict: Annotated[bool, Option("--strict", help="A suite that is not installed is a failure.")] = False,
    plugin: Plugin = None,
    as_json: Json = False,
) -> int:
    """Run every Env:variant briefly: small rollouts, one short evaluation, no video, no W&B."""
    if specs and filter:
        raise ConfigError(f"--filter {filter}", "there are names already", "give one or the other")
    chosen = specs[:limit] if specs else engine.targets(filter, limit, skip or [])
    if not chosen:
        raise ConfigError(f"--filter {filter}", "no name contains it", "see ludus train --list-envs")
    plugins = [one.name for one in load_plugins(plugin or [])]
    width, results = max(map(len, chosen)), []
    workers = jobs or os.cpu_count() or 1
    trial: engine.Kind = "video" if video else kind
    for result in engine.run(trial, chosen, timesteps=timesteps, timeout=timeout, jobs=workers, plugins=plugins):
        results.append(result)
        if not as_json:
            status = painted(f"{result.status:<7}", _STYLES[result.status])
            say(f"{status}  {result.spec:<{width}}  {result.seconds:5.1f} s  {result.detail}".rstrip())
            sys.stdout.flush()  # a pipe would hold the lines back
    if as_json:
        print(to_json([{**result._asdict(), "seconds": round(result.seconds, 2)} for result in results]), end="")
    else:
        say(engine.summary(results))
    return engine.exit_code(results, strict=strict)
