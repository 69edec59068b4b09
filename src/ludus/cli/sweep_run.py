"""From a checked sweep to its end, on whichever engine."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, Protocol

from ludus.errors import ConfigError
from ludus.session.signals import EARLY
from ludus.sweeps.engines.modal_app import Worker

if TYPE_CHECKING:
    from ludus.sweeps.engines import Engine
    from ludus.sweeps.plan import Plan
    from ludus.sweeps.spec import SweepSpec
    from ludus.sweeps.store import SweepFolder

EngineName = Literal["local", "ray", "slurm"]
"""Engines that share a file system with this machine."""
PlaceName = Literal["local", "ray", "slurm", "modal", "wandb"]


class Stoppable(Protocol):
    """Something that ends when `stopping` is set."""

    stopping: bool


@dataclass(frozen=True)
class Where:
    """Where runs are trained, and how many of them."""

    engine: PlaceName = "local"
    jobs: int | None = None
    """Runs at once, containers at Modal; none: what the spec says, or one per core."""
    worker: Worker = field(default_factory=Worker)
    """What a container has."""
    detach: bool = False
    """Whether to leave after everything is sent."""
    most: int | None = None
    """New trials at most; none: all that are left."""


def start(spec: SweepSpec, runs_dir: Path, where: Where, *, dry_run: bool, json: bool) -> int:
    """Check everything, then run the sweep; with `dry_run` only say what would happen."""
    from ludus.archive.run_plugins import load_for_spec
    from ludus.sweeps.plan import Plan
    from ludus.sweeps.store import SweepFolder
    from ludus.sweeps.trust import remember

    if where.detach:
        _check_detached(spec, where)
    if not dry_run:
        _ready(spec, where.engine)
    load_for_spec(spec.base, list(spec.overrides), [Path(name) for name in spec.plugins])
    plan = Plan(spec)
    plan.check_all()
    if dry_run:
        from ludus.cli.sweep_plan import print_plan

        return print_plan(plan, runs_dir, where, json=json)
    folder = SweepFolder.create(runs_dir, spec)
    remember(folder, spec)
    return go_on(folder, where, json=json)


def _check_detached(spec: SweepSpec, where: Where) -> None:
    if where.engine != "modal":
        raise ConfigError("--detach", "runs of this engine need this process", "write --engine modal, or use nohup")
    if spec.method == "bayes":
        raise ConfigError("--detach", "bayes chooses by the results of others", "write --method grid or random")


def _ready(spec: SweepSpec, engine: PlaceName) -> None:
    """Refuse what needs an extra, a token or a cluster that is not there, before anything else takes time."""
    if engine == "wandb":
        from ludus.sweeps.wandb import check

        return check(spec)
    if engine == "local":
        from ludus.sweeps.engines.local import warm_up

        warm_up()
    elif engine == "modal":
        from ludus.sweeps.engines.modal import check as check_modal

        check_modal(spec)
    else:
        from ludus.sweeps.engines import require

        require(engine)
    if spec.method != "grid" or spec.pruning.type != "none":
        from ludus.sweeps.search import Search

        Search(spec)
    return None


def go_on(folder: SweepFolder, where: Where, *, json: bool = False) -> int:
    """Run what is left of a sweep."""
    from ludus.cli.sweep_show import show
    from ludus.sweeps.engines.modal import sent
    from ludus.sweeps.wandb import NAME as AT_WANDB

    if where.engine != "modal" and sent(folder.path):
        remedy = f"write ludus sweep resume {folder.name} --engine modal"
        raise ConfigError(folder.name, "has runs at Modal", remedy)
    lock = folder.lock()
    lock.acquire()
    try:
        folder.make()  # an empty one may have been lost in a copy
        at_wandb = where.engine == "wandb" or (folder.path / AT_WANDB).exists()
        with aside(json=json):
            outcome = _agents(folder, where) if at_wandb else _coordinate(folder, where)
    finally:
        lock.release()
    show(folder, json=json)
    if outcome != "done":
        engine = "" if where.engine == "local" else f" --engine {where.engine}"
        with aside(json=json):
            print(f"next     ludus sweep resume {folder.name}{engine}{place(folder)}")
    else:
        _check_outcome(folder)
    return EARLY if outcome == "stopped" else 0


def _check_outcome(folder: SweepFolder) -> None:
    """A sweep in which every trial failed has failed."""
    from ludus.sweeps.ledger import Ledger

    ledger = Ledger(folder)
    ledger.read_all()
    if all(ledger.failed(trial) for trial in ledger.trials):
        why = next((line for trial in ledger.trials for line in trial.failures.values()), "there is none")
        remedy = f"remove the cause, then ludus sweep retry-failed {folder.name}{place(folder)}"
        raise ConfigError(folder.name, f"no trial was trained to the end: {why}", remedy)


def aside(*, json: bool) -> AbstractContextManager[object]:
    """A context whose text for people goes to standard error if JSON has standard output."""
    return redirect_stdout(sys.stderr) if json else nullcontext()


def _coordinate(folder: SweepFolder, where: Where) -> Literal["done", "stopped", "detached"]:
    """The coordinator's work, with a line of progress for each run."""
    from ludus.cli.board import Board
    from ludus.sweeps.coordinator import Coordinator
    from ludus.sweeps.plan import Plan

    plan = Plan(folder.spec())
    size = at_once(plan, where)
    runner = _engine(folder, plan, where)
    try:
        with Board(plan.base.config.training.budget.total) as board:
            coordinator = Coordinator(folder, runner, size, most=where.most, say=board.say, watch=board.watch)
            board.say(f"sweep {folder.name}: {plan.trials} trials, {described(plan, where)}")
            if where.detach:
                coordinator.submit()
                return "detached"
            with stopping(coordinator):
                return coordinator.run()
    finally:
        runner.close()


def _engine(folder: SweepFolder, plan: Plan, where: Where) -> Engine:
    from ludus.cli import main
    from ludus.sweeps.engines import engine_of

    if where.engine != "modal":
        assert where.engine != "wandb"
        return engine_of(where.engine, main, folder.path, plan.base.config.runtime.ranks)
    from ludus.sweeps.engines.modal import ModalEngine

    secret = plan.base.config.logging.wandb.enabled
    return ModalEngine(folder.path, folder.runs_dir, where.worker, workers(plan, where), secret=secret)


def workers(plan: Plan, where: Where) -> int:
    """Containers at Modal: as many as there are runs for, fewer where trials learn from each other."""
    wanted = where.jobs or plan.spec.jobs or (8 if plan.spec.method == "bayes" else 100)
    return min(wanted, -(-plan.runs // where.worker.runs))


def at_once(plan: Plan, where: Where) -> int:
    """Runs at once."""
    from ludus.envs.make import cores

    if where.engine == "modal":
        return plan.runs if where.detach else workers(plan, where) * where.worker.runs
    return where.jobs or plan.spec.jobs or cores()


def described(plan: Plan, where: Where) -> str:
    """How the runs are spread, in words."""
    if where.engine != "modal":
        return f"{at_once(plan, where)} runs at once"
    each = where.worker
    size = f"{each.cpu:g} cores, {each.memory_mb:,} MB, {each.timeout:,} s"
    return f"{workers(plan, where)} workers x {each.runs} runs, each with {size}"


def _agents(folder: SweepFolder, where: Where) -> Literal["done", "stopped"]:
    """Agents of W&B on this machine until no trial is left."""
    from ludus.sweeps.plan import Plan
    from ludus.sweeps.wandb import Agents, check, register, shares

    plan = Plan(folder.spec())
    check(plan.spec)
    left = plan.trials - len(folder.trials())
    if left <= 0:
        return "done"
    settings = plan.base.config.logging.wandb
    path = register(folder, settings.project, settings.entity)
    counts = shares(min(left, where.most or left), at_once(plan, where))
    print(f"sweep {folder.name}: {plan.trials} trials at W&B as {path}, {len(counts)} agents here", file=sys.stderr)
    agents = Agents(folder, path, counts)
    with stopping(agents):
        agents.wait()
    if problem := agents.problem():
        raise ConfigError(folder.name, problem, f"see {agents.logs[0]}")
    return "stopped" if agents.stopping else "done"


@contextmanager
def stopping(coordinator: Stoppable) -> Iterator[None]:
    """A context in which Ctrl-C and SIGTERM let every run save, and end the sweep."""

    def handler(number: int, _: FrameType | None) -> None:
        if not coordinator.stopping:
            print(f"{signal.Signals(number).name}: every run saves and ends ...", file=sys.stderr, flush=True)
        coordinator.stopping = True

    hung_up = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)  # nohup goes on
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM, *hung_up)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def place(folder: SweepFolder) -> str:
    """The option with which a command finds the sweep, if its runs are not in the default folder."""
    return "" if folder.runs_dir == Path("runs") else f" --runs-dir {shlex.quote(str(folder.runs_dir))}"
