"""`ludus bench`: measure speed on this machine, compare memory cores, and show what shipped configs learn."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

from ludus.cli.job import Engine
from ludus.cli.options import Jobs, Json, Plugin, numbers, words
from ludus.cli.table import Column, print_table
from ludus.envs.facts import shipped
from ludus.errors import ConfigError
from ludus.files import to_json
from ludus.plugins import load_plugins
from ludus.terminal import warn
from ludus.text import did_you_mean

if TYPE_CHECKING:
    from ludus.bench.memory.tuning import Tuning

app = Typer(rich_markup_mode=None)
_NAMES = "NAME[,NAME...]"


@app.callback()
def bench() -> None:
    """Measure speed, compare memory cores, and show what shipped configs learn."""


@app.command()
def env(
    ids: Annotated[list[str] | None, Argument(help="Ids or Env:variant; default: one of each suite.")] = None,
    num_envs: Annotated[str, Option(metavar="N[,N...]", help="Numbers of environments.")] = "1,8,16",
    backends: Annotated[str, Option(metavar=_NAMES, help="Which backends.")] = "sync,async,native,envpool",
    seconds: Annotated[float, Option(min=0.01, help="Time for each measurement, after a warm-up.")] = 1.0,
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Random-action steps per second by backend and number of environments, bare and as stored rollouts."""
    from ludus.bench.fps import BACKENDS, measure
    from ludus.checks.trial import environment

    load_plugins(plugin or [])
    names, counts = words(backends), numbers("--num-envs", num_envs, "1,8,16")
    for name in names:
        if name not in BACKENDS:
            raise ConfigError(f"--backends {backends}", f"'{name}' is no backend", did_you_mean(name, BACKENDS))
    configs = map(environment, ids or _one_of_each())
    rows = [measure(cfg, backend, count, seconds) for cfg in configs for backend in names for count in counts]
    if as_json:
        print(to_json([row._asdict() for row in rows]), end="")
        return
    numeric = [Column(title, right=True) for title in ("environments", "steps/s", "rollout steps/s")]
    cells = []
    for row in rows:
        rates = ["" if rate is None else f"{rate:,.0f}" for rate in (row.steps, row.rollout)]
        cells.append([row.id, row.backend, str(row.num_envs), *rates, row.problem])
    print_table([Column("environment"), Column("backend"), *numeric, Column("")], cells)


def _one_of_each() -> list[str]:
    """The first environment of every installed suite."""
    found: dict[str, str] = {}
    for entry in shipped():
        if entry.suite.installed:
            found.setdefault(entry.suite.title, entry.name)
    return list(found.values())


@app.command()
def memory(
    env: Annotated[str, Option(metavar=_NAMES, help="Presets, tasks, or any Env:variant.")] = "classic-masked",
    cores: Annotated[str, Option(metavar=_NAMES, help="Default: all of them.")] = "",
    seeds: Annotated[str, Option(metavar="N|N,N,...", help="How many, or which.")] = "5",
    match_params: Annotated[
        float, Option(min=0, help="Parameters as a share of the LSTM's; 0 leaves every core as it is.")
    ] = 1.0,
    steps: Annotated[
        str, Option(metavar="N[,N...]", help="Budget of a run, for all tasks or each; default: the config's.")
    ] = "",
    lr_factors: Annotated[
        str,
        Option(metavar="X[,X...]", help="Learning rates to try for each core, times the config's."),
    ] = "",
    tuning_seeds: Annotated[
        str, Option(metavar="N[,N...]", help="Seeds of --lr-factors; none of --seeds.")
    ] = "101,102",
    tuning_share: Annotated[
        float, Option(min=0.01, max=1, help="Budget of a run of --lr-factors, as a share of the whole one.")
    ] = 0.25,
    jobs: Jobs = None,
    out: Annotated[Path, Option(metavar="DIR", help="Results; a second call goes on.")] = Path("bench/memory"),
    plugin: Plugin = None,
    list_tasks: Annotated[bool, Option("--list", help="Show presets, tasks and cores.")] = False,
) -> int:
    """Train every core on every task with several seeds, and write tables and curves."""
    from ludus.bench.memory.tasks import CORES, PRESETS, pick_cores, pick_tasks

    if list_tasks:
        for name, tasks in PRESETS.items():
            print(f"{name:<16} {', '.join(task.name for task in tasks)}")
        print(f"{'cores':<16} {', '.join(CORES)}")
        return 0
    from ludus.bench.memory import BenchPlan, bench

    chosen = pick_tasks(words(env)), pick_cores(words(cores))
    budgets = [numbers("--steps", word, "100000 or --steps 65536,131072")[0] for word in words(steps)]
    given = numbers("--seeds", seeds, "5 or --seeds 1,2,3", least=0)
    plugins = [one.name for one in load_plugins(plugin or [])]
    numbered = given if len(given) > 1 else list(range(1, given[0] + 1))
    tuning = _tuning(lr_factors, tuning_seeds, tuning_share, numbered)
    plan = BenchPlan(*chosen, numbered, match_params or None, budgets, plugins, tuning)
    failures = bench(plan, out, jobs or os.cpu_count() or 1, lambda line: print(line, flush=True))
    if (out / "table.md").is_file():
        print(f"{out}/table.md, table.csv, table.tex, results.json and pictures are written")
    return 1 if failures else 0


def _tuning(factors: str, seeds: str, share: float, taken: list[int]) -> Tuning | None:
    """What `--lr-factors` asks for."""
    from ludus.bench.memory.tuning import Tuning

    if not factors:
        return None
    try:
        found = [float(word) for word in words(factors)]
    except ValueError:
        found = []
    if not found or not all(0 < factor < math.inf for factor in found) or len(set(found)) < len(found):
        raise ConfigError(f"--lr-factors {factors}", "not a list of different numbers above 0", "write 0.3,1,3")
    own = numbers("--tuning-seeds", seeds, "101,102", least=0)
    if both := sorted(set(own) & set(taken)):
        remedy = "what is tuned on a seed cannot be compared on it: choose another"
        raise ConfigError(f"--tuning-seeds {seeds}", f"{both[0]} is one of --seeds, too", remedy)
    return Tuning(found, own, share)


@app.command()
def results(
    specs: Annotated[list[str] | None, Argument(help="Env:variant; default: all that are listed.")] = None,
    seeds: Annotated[str | None, Option(metavar="N[,N...]|A..B", help="Default: those of the list.")] = None,
    jobs: Annotated[str, Option("--jobs", "-j", metavar="N|auto", help="Runs at once; auto: one per core.")] = "auto",
    engine: Engine = "local",
    runs: Annotated[Path | None, Option("--list", metavar="FILE", help="Another list of runs.")] = None,
    out: Annotated[Path, Option(metavar="DIR", help="Runs and results; a second call goes on.")] = Path(
        "bench/results"
    ),
    page: Annotated[Path | None, Option(metavar="FILE", help="Where the page goes; default: DIR/results.md.")] = None,
    write_only: Annotated[bool, Option("--write-only", help="Train nothing, write the page again.")] = False,
) -> int:
    """Train shipped configs on fresh seeds, and write what they and earlier ones in DIR reach, with intervals."""
    from ludus import files
    from ludus.bench import results as found
    from ludus.cli.many import at_once, options_of, train_all

    chosen = {claim.spec: claim for claim in found.listed(runs or found.LIST)}
    numbered = None if seeds is None else tuple(numbers("--seeds", seeds, "1..5", least=0))
    claims = [chosen.get(spec) or found.Claim(spec, found.seeds_from(1, 5)) for spec in specs or chosen]
    claims = claims if numbered is None else [replace(claim, seeds=numbered) for claim in claims]
    code = 0
    if not write_only:
        planned = [run for claim in claims for run in claim.runs()]
        options = options_of(out / "runs", None, None, debug=False)
        ended = train_all(planned, options, out / "runs", at_once(jobs), engine, unfinished=True)
        code = ended.code
        for line in ended.failures:
            warn(line)
    everything = found.with_earlier(claims, list(chosen.values()), out / "runs")
    done, missing = found.finished(everything, out / "runs")
    for line in missing:
        warn(line)
    words = ["ludus", "bench", "results", *(specs or []), *(["--seeds", seeds] if seeds else [])]
    if done:
        page = page or out / "results.md"
        files.write_text(page, found.page(done, missing, words, earlier=len(everything) > len(claims)))
        files.write_json(out / "results.json", {"results": [result.data() for result in done]})
        print(f"{page} and {out}/results.json are written")
    return code
