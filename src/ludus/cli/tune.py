"""`ludus tune`: search what an algorithm says is worth searching, and try the winner on fresh seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from ludus.cli import job as asked
from ludus.cli.job import pick_spec, split
from ludus.cli.options import Jobs, Json, Plugin, RunsDir
from ludus.cli.sweep import Engine, MetricName, Sampler, start
from ludus.errors import ConfigError

Pruning = Literal["none", "median", "halving", "hyperband"]


def tune(
    words: asked.Words = None,
    trials: Annotated[int, Option(min=2, metavar="N", help="Candidates, the present settings among them.")] = 20,
    steps: Annotated[int | None, Option(min=1, metavar="N", help="Steps of each run; default: those of SPEC.")] = None,
    seeds: Annotated[int, Option(min=1, metavar="N", help="Seeds of each candidate.")] = 2,
    fresh: Annotated[int, Option(min=2, metavar="N", help="Fresh seeds for the best and the present settings.")] = 5,
    metric: MetricName = None,
    prune: Annotated[Pruning, Option(help="Stop bad candidates at their evaluations.")] = "median",
    sampler: Sampler = None,
    minutes_per_run: Annotated[float | None, Option(metavar="M", help="A longer run does not count.")] = None,
    memory_mb: Annotated[float | None, Option(metavar="MB", help="A larger run does not count.")] = None,
    write: Annotated[
        str | None, Option(metavar="ENV:VARIANT", help="Add the winner to ./configs/environments.")
    ] = None,
    name: Annotated[str | None, Option(metavar="NAME", help="Name of the sweep.")] = None,
    search_seed: Annotated[int, Option(min=0, metavar="N", help="Seed of the search.")] = 0,
    jobs: Jobs = None,
    engine: Engine = "local",
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan and stop.")] = False,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
    json: Json = False,
) -> int:
    """Search for better settings of an algorithm; a tuning that was stopped goes on with the same command."""
    from ludus.archive.run_plugins import load_for_spec
    from ludus.sweeps import tuning
    from ludus.sweeps.forms import build
    from ludus.sweeps.grammar import parameter_of
    from ludus.sweeps.store import SweepFolder
    from ludus.text import safe_name

    spec, overrides = split(words or [])
    base = pick_spec(spec, None, None)
    load_for_spec(base, overrides, plugin)
    own = {word: parameter_of(word) for word in overrides}
    fixed = [word for word, parameter in own.items() if parameter is None]
    searched = [parameter for parameter in own.values() if parameter is not None] or tuning.space(base, fixed)
    if write is not None:
        tuning.target_file(write, base)
    fields: dict[str, Any] = {
        "name": name or f"tune-{safe_name(base)}"[:24],
        "base": base,
        "overrides": (*fixed, *tuning.steps_of(base, fixed, steps)),
        "parameters": searched,
        "method": "bayes",
        "sampler": sampler or "tpe",
        "metric": {"name": metric or "area"},
        "trials": trials,
        "seeds": tuple(range(1, seeds + 1)),
        "jobs": jobs,
        "pruning": {"type": prune, "first": 2},
        "limits": {"minutes": minutes_per_run, "memory_mb": memory_mb},
        "begin_as_is": True,
        "confirmation": {"trials": 1, "seeds": tuple(range(tuning.FRESH, tuning.FRESH + fresh))},
        "seed": search_seed,
        "plugins": tuple(str(one) for one in plugin or []),
    }
    wanted = build(fields, "ludus tune")
    folder = SweepFolder(runs_dir, wanted.name)
    code = _go_on(folder, wanted, engine, json) if folder.exists() else None
    if code is None:
        code = start(wanted, runs_dir, engine, dry_run=dry_run, json=json)
    return code if code or dry_run else _tell(SweepFolder.load(runs_dir, wanted.name), write)


def _go_on(folder: Any, wanted: Any, engine: Any, json: bool) -> int:
    """Go on with a tuning of the same settings; another one of that name is refused."""
    from ludus.cli.sweep import go_on

    if folder.spec().model_copy(update={"jobs": wanted.jobs}) != wanted:
        remedy = "repeat its command, or write --name OTHER"
        raise ConfigError(folder.name, "there is a tuning of this name with other settings", remedy)
    return go_on(folder, engine, jobs=wanted.jobs, json=json)


def _tell(folder: Any, write: str | None) -> int:
    from ludus.sweeps import tuning
    from ludus.sweeps.ledger import Ledger

    ledger = Ledger(folder)
    ledger.read_all()
    found = tuning.verdict(ledger)
    if found is None:
        raise ConfigError(folder.name, "no candidate was trained to the end", f"see ludus sweep show {folder.name}")
    print()
    for line in found.lines():
        print(line)
    if write is not None and found.survives:
        print(f"wrote    {write} into {tuning.write_variant(ledger, found, write)}")
    elif write is not None:
        print(f"nothing is written to {write}")
    return 0
