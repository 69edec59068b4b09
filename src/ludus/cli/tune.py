"""`ludus tune`: search what an algorithm says is worth searching, and try the winner on fresh seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from ludus.cli import job as asked
from ludus.cli.job import pick_spec, split
from ludus.cli.options import Jobs, Json, Plugin, RunsDir
from ludus.cli.sweep import Engine, MetricName, Sampler
from ludus.cli.sweep_run import Where, aside, go_on, start
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
    from ludus.sweeps.store import SweepFolder

    spec, overrides = split(words or [])
    base = pick_spec(spec, None, None)
    load_for_spec(base, overrides, plugin)
    if write is not None:
        tuning.target_file(write, base)
    options: dict[str, Any] = {"name": name, "sampler": sampler or "tpe", "jobs": jobs, "seed": search_seed}
    options |= {"trials": trials, "metric": {"name": metric or "area"}, "pruning": {"type": prune, "first": 2}}
    options |= {"limits": {"minutes": minutes_per_run, "memory_mb": memory_mb}}
    options["plugins"] = tuple(str(one) for one in plugin or [])
    wanted = tuning.spec_of(base, overrides, steps, seeds, fresh, options)
    folder, where = SweepFolder(runs_dir, wanted.name), Where(engine, jobs)
    code = _go_on(folder, wanted, where, json) if folder.exists() and not dry_run else None
    if code is None:
        code = start(wanted, runs_dir, where, dry_run=dry_run, json=json)
    if code or dry_run:
        return code
    with aside(json=json):
        return _tell(SweepFolder.load(runs_dir, wanted.name), write)


def _go_on(folder: Any, wanted: Any, where: Where, json: bool) -> int:
    """Go on with a tuning of the same settings; another one of that name is refused."""
    if folder.spec().model_copy(update={"jobs": wanted.jobs}) != wanted:
        remedy = "repeat its command, or write --name OTHER"
        raise ConfigError(folder.name, "there is a tuning of this name with other settings", remedy)
    return go_on(folder, where, json=json)


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
