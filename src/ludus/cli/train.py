"""`ludus train`: from a command line to runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ludus.cli.plugin import Plugin, load_plugins
from ludus.errors import ConfigError

if TYPE_CHECKING:
    from ludus.config.compose import Resolved
    from ludus.config.schema import ExperimentConfig
    from ludus.run import Run

DEFAULT = "Bandit-v0:ppo"


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SPEC] [OVERRIDES]",
        help=f"Env:variant, +experiment=name or a .yaml/.json file (default: {DEFAULT}); then key=value, +key=value, "
        "++key=value or ~key in Hydra's grammar.",
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Do not ask before training.")]
ConfigId = Annotated[str | None, typer.Option("--config_id", "--config-id", metavar="SPEC", help="SPEC as an option.")]
Config = Annotated[str | None, typer.Option(metavar="FILE", help="A config file as an option.")]
ListEnvs = Annotated[bool, typer.Option("--list-envs", help="List what can be trained; SPEC is the search.")]
Seed = Annotated[str | None, typer.Option(metavar="N[,N...]", help="One run per seed.")]
MaxTimesteps = Annotated[
    str | None, typer.Option("--max-timesteps", "--max_timesteps", metavar="N", help="Budget in environment steps.")
]
TotalTimesteps = Annotated[
    str | None, typer.Option("--total-timesteps", "--total_timesteps", metavar="N", help="The same.")
]
Override = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="One more override.")]
EnvKwargs = Annotated[
    list[str] | None,
    typer.Option("--env-kwargs", "--env_kwargs", metavar="KEY=VALUE", help="For the environment's constructor."),
]
Tag = Annotated[list[str] | None, typer.Option(metavar="LABEL", help="Add a label to the run.")]
Cfg = Annotated[str | None, typer.Option(metavar="job", help="Print the resolved config and stop.")]
Package = Annotated[str | None, typer.Option(metavar="PATH", help="With --cfg: only this part of it.")]
InitFrom = Annotated[
    str | None, typer.Option("--init-from", metavar="RUN[/@best]", help="Start from the weights of another run.")
]
Resume = Annotated[
    str | None,
    typer.Option(metavar="RUN|auto", help="Go on with a run; auto: with the newest unfinished one of this config."),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Full tracebacks; checks every tensor, profiles, writes debug/ into the run.")
]
RunsDir = Annotated[Path, typer.Option(metavar="DIR", help="Where runs are kept.")]


def train(
    words: Words = None,
    quiet: Quiet = False,
    config_id: ConfigId = None,
    config: Config = None,
    list_envs: ListEnvs = False,
    seed: Seed = None,
    max_timesteps: MaxTimesteps = None,
    total_timesteps: TotalTimesteps = None,
    override: Override = None,
    env_kwargs: EnvKwargs = None,
    tag: Tag = None,
    cfg: Cfg = None,
    package: Package = None,
    plugin: Plugin = None,
    init_from: InitFrom = None,
    resume: Resume = None,
    runs_dir: RunsDir = Path("runs"),
    debug: Debug = False,
) -> int:
    """Train an experiment."""
    spec, overrides = split(words or [])
    if list_envs:
        return print_targets(spec)
    load_plugins(plugin)
    overrides += override or []
    overrides += [f"++environment.kwargs.{pair}" for pair in env_kwargs or []]
    overrides += [f"max_timesteps={max_timesteps}"] if max_timesteps else []
    overrides += [f"total_timesteps={total_timesteps}"] if total_timesteps else []
    if resume not in (None, "auto"):
        return go_on(resume, spec or config_id or config, overrides, plugin, runs_dir, debug)
    init_from = init_from and init_from.removeprefix(f"{runs_dir}/")
    runs_dir = runs_dir.absolute()  # an environment may change the working directory, and there are several seeds
    spec = pick_spec(spec, config_id, config)
    jobs = [resolve(spec, [*overrides, *chosen], tag or []) for chosen in seeds(seed)]
    if cfg is not None:
        return print_config(jobs[0].config, cfg, package)
    if not quiet:
        if not confirmed(jobs):
            return 0
        ask_about_programs(jobs)
    from ludus.session import train as train_run
    from ludus.session.signals import EARLY

    for job in jobs:
        run = go_on_with_unfinished(job, runs_dir, debug) if resume else None
        run = run or train_run(job, runs_dir=runs_dir, init_from=init_from, debug=debug)
        if run.interrupted and (run.stopped_early or job is not jobs[-1]):
            return EARLY
    return 0


def ask_about_programs(jobs: list[Resolved]) -> None:
    """A program that a file would start is started only after a yes."""
    from ludus.runs import consent

    for job in jobs:
        consent.ask(job)


def go_on_with_unfinished(job: Resolved, runs_dir: Path, debug: bool) -> Run | None:
    """The newest unfinished run of just this config, trained to its end; none if there is none."""
    from ludus.session import resume, unfinished

    earlier = unfinished(job.config, runs_dir)
    return None if earlier is None else resume(earlier, [], runs_dir=runs_dir, debug=debug)


def go_on(
    run: str, spec: str | None, overrides: list[str], plugin: list[Path] | None, runs_dir: Path, debug: bool
) -> int:
    """`ludus resume` for those who look for it here."""
    if spec is not None:
        problem = f"a run has its own config, so '{spec}' says too much"
        raise ConfigError(f"--resume {run}", problem, "leave the spec out, or write --resume auto")
    from ludus.cli.resume import Mode
    from ludus.cli.resume import resume as go_on_with

    return go_on_with(run, overrides, mode=Mode.exact, plugin=plugin, runs_dir=runs_dir, debug=debug)


def split(words: list[str]) -> tuple[str | None, list[str]]:
    """The spec among the positional arguments, and the overrides."""
    specs = [word for word in words if word.startswith("+experiment=") or ("=" not in word and word[:1] != "~")]
    if len(specs) > 1:
        raise ConfigError(specs[1], f"a second spec besides '{specs[0]}'", "overrides are written key=value")
    return (specs[0] if specs else None), [word for word in words if word not in specs]


def pick_spec(spec: str | None, config_id: str | None, config: str | None) -> str:
    """The one spec that was given, in whichever form."""
    given = {"SPEC": spec, "--config_id": config_id, "--config": config}
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        raise ConfigError(" and ".join(named), "say what to train more than once", "keep one of them")
    chosen = next(iter(named.values()), DEFAULT)
    if ":" not in chosen and "=" not in chosen and not chosen.endswith((".yaml", ".yml", ".json")):
        print_targets(chosen)
        raise ConfigError(chosen, "names no variant", "pick an Env:variant; ludus train --list-envs shows all")
    return chosen


def print_targets(search: str | None) -> int:
    """Every target that fits, with its description."""
    from ludus.config.compose import find_targets

    targets = find_targets(search)
    width = max((len(target.spec) for target in targets), default=0)
    for target in targets:
        line = f"{target.spec:<{width}}  {target.description}".rstrip()
        print("".join(char if char.isprintable() else " " for char in line))
    return 0


def seeds(text: str | None) -> list[list[str]]:
    """The overrides of each run `--seed` asks for."""
    if text is None:
        return [[]]
    numbers = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in numbers) or len(set(numbers)) < len(numbers):
        raise ConfigError(f"--seed {text}", "not a list of different whole numbers", "write --seed 1,2,3")
    return [[f"seed={number}"] for number in numbers]


def resolve(spec: str, overrides: list[str], tags: list[str]) -> Resolved:
    """The resolved experiment, with labels added and small enough for a debugger if one is attached."""
    from ludus.config.compose import load

    resolved = load(spec, overrides)
    further = []
    if tags:
        from ludus.runs.tags import check

        for tag in tags:
            check(tag, f"--tag {tag}"[:80])
        quoted = [repr(tag) for tag in (*resolved.config.experiment.tags, *tags)]
        further.append(f"experiment.tags=[{','.join(quoted)}]")
    if debugger_attached():
        further += debugger_overrides(resolved.config)
        print("debugger attached: one environment in this process, whole rollouts as batches", file=sys.stderr)
    return load(spec, [*overrides, *further]) if further else resolved


def debugger_attached() -> bool:
    """Whether somebody wants to step through; pdb without breakpoints removes its trace but stays on the stack."""
    if sys.gettrace() is not None or "debugpy" in sys.modules:
        return True
    frame = sys._getframe().f_back
    while frame is not None and frame.f_globals.get("__name__") != "bdb":
        frame = frame.f_back
    return frame is not None


def debugger_overrides(config: ExperimentConfig) -> list[str]:
    """One environment, stepped in this process; a batch in steps may no longer divide the rollout, a fraction does."""
    batch = getattr(config.algorithm.config, "batch_size", 0)
    return [
        "environment.num_envs=1",
        "environment.vectorization=sync",
        *(["algorithm.batch_size=1.0"] if batch > 1 else []),
    ]


def print_config(config: ExperimentConfig, kind: str, package: str | None) -> int:
    """The resolved config, or one part of it, as YAML."""
    from ludus.config.compose import dump
    from ludus.config.read import to_yaml
    from ludus.config.validate import MISSING, select
    from ludus.text import did_you_mean

    if kind != "job":
        raise ConfigError(f"--cfg {kind}", "only the job's config exists", "write --cfg job")
    data = dump(config)
    part = data if package in (None, "_global_") else select(data, tuple(package.split(".")))
    if part is MISSING:
        raise ConfigError(f"--package {package}", "no such part", did_you_mean(package, data))
    print(to_yaml(part), end="")
    return 0


def confirmed(jobs: list[Resolved]) -> bool:
    """Ask, but only somebody who can answer."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return True
    config = jobs[0].config
    names = ", ".join(str(job.config.experiment.seed) for job in jobs)
    place, budget = config.environment.id or "stored steps", config.training.budget
    print(f"{config.algorithm.name} on {place}, {budget.total:,} {budget.noun}, seed {names}")
    try:
        answer = input("Start training? [Y/n] ").strip().lower()
    except EOFError:
        answer = "n"
    return answer in ("", "y", "yes")
