"""`ludus sweep`: a search over settings, from a file or from the command line; and what came of it."""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from typer import Argument, Option

from ludus.cli.options import Jobs, Json, Plugin, RunsDir
from ludus.errors import ConfigError
from ludus.session.signals import EARLY

if TYPE_CHECKING:
    from ludus.sweeps.spec import SweepSpec
    from ludus.sweeps.store import SweepFolder


class Stoppable(Protocol):
    """Something that ends when `stopping` is set."""

    stopping: bool


EngineName = Literal["local", "ray", "slurm"]
ACTIONS = ("show", "best", "list", "resume", "retry-failed", "stop")
_WORDS = (
    "A sweep file, or Env:variant with settings such as algorithm.lr=loguniform(1e-4,1e-2) or algorithm.clip=0.1,0.2; "
    f"or one of {', '.join(ACTIONS)} and the NAME of a sweep."
)
Engine = Annotated[EngineName, Option(help="Where runs are trained.")]
Method = Annotated[Literal["grid", "random", "bayes"] | None, Option(help="Default: grid, or bayes for ranges.")]
Sampler = Annotated[Literal["tpe", "cmaes", "gp"] | None, Option(help="Of bayes; default: tpe.")]
Trials = Annotated[int | None, Option("--trials", "--count", min=1, metavar="N", help="Most trials.")]
Seeds = Annotated[str | None, Option(metavar="N|A,B|A..B", help="Seeds of each trial.")]
Prune = Annotated[
    Literal["none", "median", "halving", "hyperband", "wilcoxon"] | None, Option(help="Stop bad trials early.")
]
MetricName = Annotated[str | None, Option(metavar="NAME", help="final, best, area or a metric; default: final.")]


def sweep(
    words: Annotated[list[str] | None, Argument(metavar="FILE|SPEC|ACTION [OVERRIDES]", help=_WORDS)] = None,
    name: Annotated[str | None, Option(metavar="NAME", help="Name of the sweep.")] = None,
    method: Method = None,
    sampler: Sampler = None,
    trials: Trials = None,
    seeds: Seeds = None,
    jobs: Jobs = None,
    metric: MetricName = None,
    minimize: Annotated[bool, Option("--minimize", help="Less of the metric is better.")] = False,
    prune: Prune = None,
    search_seed: Annotated[int | None, Option(min=0, metavar="N", help="Seed of the search.")] = None,
    engine: Engine = "local",
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan and stop.")] = False,
    page: Annotated[Path | None, Option(metavar="FILE", help="With show: where the page goes.")] = None,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
    json: Json = False,
) -> int:
    """Search over settings: every trial is an ordinary run; a sweep that was stopped goes on with resume."""
    words = words or []
    if words and words[0] in ACTIONS:
        return _act(words[0], words[1:], runs_dir, jobs, engine, page, json)
    changes: dict[str, Any] = {"name": name, "method": method, "sampler": sampler, "trials": trials, "jobs": jobs}
    changes |= {"seeds": seeds, "seed": search_seed, "plugins": tuple(str(one) for one in plugin or [])}
    changes["pruning"] = None if prune is None else {"type": prune}
    changes["metric"] = _metric(metric, minimize)
    spec = read_spec(words, changes, runs_dir)
    return start(spec, runs_dir, engine, dry_run=dry_run, json=json)


def _metric(name: str | None, minimize: bool) -> dict[str, str] | None:
    if name is None and minimize:
        raise ConfigError("--minimize", "minimizes what?", "name it: --metric loss")
    return None if name is None else {"name": name, "goal": "minimize" if minimize else "maximize"}


def read_spec(words: list[str], changes: dict[str, Any], runs_dir: Path) -> SweepSpec:
    """The spec that the words mean: a file, or a run spec with a search space."""
    from ludus.cli.job import split
    from ludus.config.compose import located
    from ludus.sweeps.forms import build, from_file, seeds_of
    from ludus.sweeps.grammar import parameter_of
    from ludus.sweeps.store import free_name
    from ludus.text import safe_name

    named = changes["name"] is not None
    if changes["seeds"] is not None:
        text = changes["seeds"]
        changes["seeds"] = seeds_of(int(text) if text.isdecimal() else text, f"--seeds {text}")
    file = next((path for word in words if (path := located(word)) is not None and _is_sweep_file(path)), None)
    rest = [word for word in words if file is None or located(word) != file]
    base, overrides = split(rest)
    found = {word: parameter_of(word) for word in overrides}
    changes["overrides"] = tuple(word for word, parameter in found.items() if parameter is None)
    parameters = [parameter for parameter in found.values() if parameter is not None]
    if file is not None:
        if parameters:
            raise ConfigError(parameters[0].key, f"{file.name} says what is searched", "write it there")
        spec = from_file(file, base, changes)
        return spec if named else spec.model_copy(update={"name": free_name(runs_dir, spec.name)})
    if base is None:
        raise ConfigError("ludus sweep", "says not what to train", "write CartPole-v1:ppo algorithm.lr=1e-3,3e-4")
    if not parameters:
        remedy = f"write ludus sweep {base} algorithm.lr=1e-3,3e-4, or algorithm.lr=loguniform(1e-4,1e-2) --trials 30"
        raise ConfigError(base, "nothing is searched", remedy)
    ranges = any(parameter.kind != "choice" for parameter in parameters)
    fields = {key: value for key, value in changes.items() if value is not None}
    fields.setdefault("method", "bayes" if ranges or changes["trials"] else "grid")
    fields.setdefault("name", free_name(runs_dir, safe_name(base.rpartition("/")[2])[:20]))
    return build({**fields, "base": base, "parameters": parameters}, "ludus sweep")


def _is_sweep_file(path: Path) -> bool:
    from ludus.config.read import read_file

    return bool(read_file(path).keys() & {"parameters", "sweep", "method"})


def start(spec: SweepSpec, runs_dir: Path, engine: EngineName, *, dry_run: bool, json: bool) -> int:
    """Check everything, then run the sweep; with `dry_run` only say what would happen."""
    from ludus.archive.run_plugins import load_for_spec
    from ludus.sweeps.plan import Plan
    from ludus.sweeps.store import SweepFolder

    if engine == "local" and not dry_run:
        from ludus.sweeps.engines.local import warm_up

        warm_up()
    load_for_spec(spec.base, list(spec.overrides), [Path(name) for name in spec.plugins])
    plan = Plan(spec)
    plan.check_all()
    if dry_run:
        from ludus.cli.sweep_plan import print_plan

        return print_plan(plan, runs_dir, json=json)
    _ready(spec, engine)
    folder = SweepFolder.create(runs_dir, spec)
    return go_on(folder, engine, json=json)


def _ready(spec: SweepSpec, engine: EngineName) -> None:
    """Refuse what needs an extra that is not there, before a folder is made."""
    from ludus.cli import main
    from ludus.sweeps.engines import engine_of
    from ludus.sweeps.search import Search

    if spec.method != "grid" or spec.pruning.type != "none":
        Search(spec)
    if engine != "local":
        engine_of(engine, main, Path(tempfile.gettempdir())).close()


def go_on(folder: SweepFolder, engine: EngineName, *, jobs: int | None = None, json: bool = False) -> int:
    """Run what is left of a sweep."""
    from ludus.cli import main
    from ludus.cli.board import Board
    from ludus.envs.make import cores
    from ludus.sweeps.coordinator import Coordinator
    from ludus.sweeps.engines import engine_of

    lock = folder.lock()
    lock.acquire()
    try:
        runner = engine_of(engine, main, folder.path)
        try:
            size = jobs or folder.spec().jobs or cores()
            with Board(0) as board:
                coordinator = Coordinator(folder, runner, size, say=board.say, watch=board.watch)
                board.budget = coordinator.plan.base.config.training.budget.total
                board.say(f"sweep {folder.name}: {coordinator.plan.trials} trials, {size} runs at once")
                with stopping(coordinator):
                    outcome = coordinator.run()
        finally:
            runner.close()
    finally:
        lock.release()
    _show(folder, json=json)
    if outcome == "stopped":
        print(f"next     ludus sweep resume {folder.name}{_place(folder)}")
    return EARLY if outcome == "stopped" else 0


@contextmanager
def stopping(coordinator: Stoppable) -> Iterator[None]:
    """A context in which Ctrl-C and SIGTERM let every run save, and end the sweep."""

    def handler(number: int, _: FrameType | None) -> None:
        if not coordinator.stopping:
            print(f"{signal.Signals(number).name}: every run saves and ends ...", file=sys.stderr, flush=True)
        coordinator.stopping = True

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


# ---- what there is -------------------------------------------------------------------------------


def _act(
    action: str, words: list[str], runs_dir: Path, jobs: int | None, engine: EngineName, page: Path | None, json: bool
) -> int:
    from ludus.sweeps.coordinator import retry_failed
    from ludus.sweeps.store import SweepFolder, names

    if action == "list":
        for name in names(runs_dir):
            print(name)
        return 0
    if len(words) != 1:
        known = names(runs_dir)
        remedy = f"write ludus sweep {action} {known[-1] if known else 'NAME'}"
        raise ConfigError(f"ludus sweep {action}", "needs the name of one sweep", remedy)
    folder = SweepFolder.load(runs_dir, words[0])
    if action == "stop":
        print(f"process {folder.stop()} saves every run and ends; go on with ludus sweep resume {folder.name}")
        return 0
    if action == "best":
        return _best(folder, json=json)
    if action == "show":
        return _show(folder, page=page, json=json, whole=True)
    if action == "retry-failed":
        with_failures = folder.lock()
        with_failures.acquire()
        try:
            print(f"{retry_failed(folder)} failed trials are tried again")
        finally:
            with_failures.release()
    spec = folder.spec()
    from ludus.archive.run_plugins import load_for_spec

    load_for_spec(spec.base, list(spec.overrides), [Path(name) for name in spec.plugins])
    return go_on(folder, engine, jobs=jobs, json=json)


def _show(folder: SweepFolder, *, json: bool, page: Path | None = None, whole: bool = False) -> int:
    """The table of trials, and the page and journal renewed."""
    from ludus.cli.table import Column, print_table, state_style
    from ludus.files import to_json
    from ludus.sweeps import results
    from ludus.sweeps.journal import write_journal
    from ludus.sweeps.ledger import Ledger
    from ludus.sweeps.page import write_page
    from ludus.terminal import quiet

    ledger = Ledger(folder)
    ledger.read_all()
    found = results.rows(ledger)
    place = page or folder.path / "sweep.html"
    write_page(ledger, place)
    journal = write_journal(ledger)
    if json:
        best = results.best(ledger)
        data = {"name": folder.name, "trials": [row.data() for row in found], "best": best and best.data()}
        print(to_json({**data, "running": folder.running(), "page": str(place)}), end="")
        return 0
    if quiet() and not whole:
        return 0
    styles = {"complete": "", "open": "dim", "pruned": "yellow"}
    columns = [Column(title, i in (0, 2, 3)) for i, title in enumerate(results.titles(ledger))]
    columns[1] = Column("state", style=lambda text: styles.get(text, state_style(text)))
    print_table(columns, [row.cells() for row in found])
    print(f"{folder.name}: {ledger.plan.trials} trials" + (", running" if folder.running() else ""))
    best = results.best(ledger)
    if best is not None:
        print(f"best     trial {best.number}: {results.command(ledger, best)}")
    print(f"page     {place}")
    if journal is not None:
        print(f"journal  optuna-dashboard {journal}")
    print(f"next     ludus compare -f tags=sweep:{folder.name}{_place(folder)}")
    return 0


def _place(folder: SweepFolder) -> str:
    """The option with which a command finds the sweep, if its runs are not in the default folder."""
    return "" if folder.runs_dir == Path("runs") else f" --runs-dir {shlex.quote(str(folder.runs_dir))}"


def _best(folder: SweepFolder, *, json: bool) -> int:
    from ludus.files import to_json
    from ludus.sweeps import results
    from ludus.sweeps.ledger import Ledger

    ledger = Ledger(folder)
    ledger.read_all()
    best = results.best(ledger)
    if best is None:
        raise ConfigError(folder.name, "no trial is complete", f"ludus sweep resume {folder.name}")
    print(to_json(best.data()) if json else results.command(ledger, best) + "\n", end="")
    return 0
