"""`ludus sweep`: a search over settings, from a file or from the command line; and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from ludus.cli.options import Jobs, Json, Plugin, RunsDir
from ludus.cli.sweep_run import EngineName, PlaceName, Where, start
from ludus.cli.sweep_show import ACTIONS, act
from ludus.errors import ConfigError
from ludus.sweeps.engines.modal_app import Worker

if TYPE_CHECKING:
    from ludus.sweeps.spec import SweepSpec

_WORDS = (
    "A sweep file, or Env:variant with settings such as algorithm.lr=loguniform(1e-4,1e-2) or algorithm.clip=0.1,0.2; "
    f"or one of {', '.join(ACTIONS[:-1])} and the NAME of a sweep."
)
Engine = Annotated[EngineName, Option(help="Where runs are trained.")]
Place = Annotated[PlaceName, Option("--engine", "--backend", help="Where runs are trained.")]
Method = Annotated[Literal["grid", "random", "bayes"] | None, Option(help="Default: grid, or bayes for ranges.")]
Sampler = Annotated[Literal["tpe", "cmaes", "gp"] | None, Option(help="Of bayes; default: tpe.")]
Trials = Annotated[int | None, Option("--trials", "--count", min=1, metavar="N", help="Most trials.")]
Seeds = Annotated[str | None, Option(metavar="N|A,B|A..B", help="Seeds of each trial.")]
Prune = Annotated[
    Literal["none", "median", "halving", "hyperband", "wilcoxon"] | None, Option(help="Stop bad trials early.")
]
MetricName = Annotated[str | None, Option(metavar="NAME", help="final, best, area or a metric; default: final.")]
SweepId = Annotated[str | None, Option(metavar="NAME", help="Go on with this sweep; --count: so many new trials.")]
Detach = Annotated[bool, Option("--detach", help="With modal: leave when everything is sent; resume fetches it.")]
PerWorker = Annotated[int, Option(min=1, metavar="N", help="With modal: runs of one container, one by one.")]
Cpu = Annotated[float, Option(min=0.125, metavar="N", help="With modal: cores of a container.")]
Memory = Annotated[int, Option(min=128, metavar="MB", help="With modal: its memory.")]
Timeout = Annotated[int, Option(min=1, max=86_400, metavar="SECONDS", help="With modal: the longest a call may take.")]


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
    engine: Place = "local",
    sweep_id: SweepId = None,
    detach: Detach = False,
    runs_per_worker: PerWorker = 1,
    cpu: Cpu = Worker.cpu,
    memory: Memory = Worker.memory_mb,
    timeout: Timeout = Worker.timeout,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan and stop.")] = False,
    page: Annotated[Path | None, Option(metavar="FILE", help="With show: where the page goes.")] = None,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
    json: Json = False,
) -> int:
    """Search over settings: every trial is an ordinary run; a sweep that was stopped goes on with resume."""
    where = Where(engine, jobs, Worker(cpu, memory, timeout, runs_per_worker), detach)
    words = words or []
    if sweep_id is not None:
        where, words = Where(engine, jobs, where.worker, detach, trials), ["resume", sweep_id, *words]
    if words and words[0] in ACTIONS:
        return act(words[0], words[1:], runs_dir, where, page, plugin or [], json=json)
    changes: dict[str, Any] = {"name": name, "method": method, "sampler": sampler, "trials": trials, "jobs": jobs}
    changes |= {"seeds": seeds, "seed": search_seed, "plugins": tuple(str(one) for one in plugin or [])}
    changes["pruning"] = None if prune is None else {"type": prune}
    changes["metric"] = _metric(metric, minimize)
    return start(read_spec(words, changes, runs_dir), runs_dir, where, dry_run=dry_run, json=json)


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
        changes["seeds"] = seeds_of(int(text) if text.isdecimal() and len(text) < 20 else text, f"--seeds {text[:40]}")
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
