"""What a command line asks for: from its words to a resolved experiment, shown or confirmed by the user."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ludus.cli.flags import one_spec
from ludus.cli.options import numbers
from ludus.errors import ConfigError
from ludus.terminal import agrees, can_answer

if TYPE_CHECKING:
    from ludus.config.compose import Resolved
    from ludus.config.schema import ExperimentConfig
    from ludus.plugins import Plugin

DEFAULT = "Bandit-v0:ppo"

Text = str | None
Texts = list[str] | None
Option = typer.Option
Words = Annotated[
    Texts,
    typer.Argument(
        metavar="[SPEC] [OVERRIDES]",
        help=f"Env:variant, +experiment=name or a .yaml/.json file (default: {DEFAULT}); then key=value, +key=value, "
        "++key=value or ~key in Hydra's grammar.",
    ),
]
Quiet = Annotated[bool, Option("-q", "--quiet", help="Do not ask before training.")]
ConfigId = Annotated[Text, Option("--config_id", "--config-id", metavar="SPEC", help="Another way to write SPEC.")]
Config = Annotated[Text, Option(metavar="FILE", help="Another way to name a config file.")]
ListEnvs = Annotated[bool, Option("--list-envs", help="List all Env:variant; SPEC is a search text.")]
Seed = Annotated[Text, Option(metavar="N[,N...]|A..B", help="One run per seed.")]
AtOnce = Annotated[Text, Option("--jobs", "-j", metavar="N|auto", help="Seeds at once; auto: one per core.")]
Engine = Annotated[Literal["local", "ray", "slurm"], Option(help="Where runs, or the ranks of one, are trained.")]
MaxTimesteps = Annotated[Text, Option("--max-timesteps", "--max_timesteps", metavar="N", help="Budget in steps.")]
TotalTimesteps = Annotated[Text, Option("--total-timesteps", "--total_timesteps", metavar="N", help="The same.")]
Override = Annotated[Texts, Option(metavar="KEY=VALUE", help="One more override.")]
EnvKwargs = Annotated[
    Texts,
    Option("--env-kwargs", "--env_kwargs", metavar="KEY=VALUE", help="Argument of the environment's constructor."),
]
Ranks = Annotated[int | None, Option(metavar="N", help="Processes that train one run together.")]
WandbSweep = Annotated[
    bool,
    Option("--wandb-sweep", "--wandb_sweep", help="Insist on the values of W&B's agent."),
]
Tag = Annotated[Texts, Option(metavar="LABEL", help="Add a label to the run.")]
Cfg = Annotated[Text, Option(metavar="job", help="Print the resolved config and stop.")]
Package = Annotated[Text, Option(metavar="PATH", help="With --cfg: print only this part.")]
InitFrom = Annotated[Text, Option("--init-from", metavar="RUN[/@best]", help="Start from the weights of another run.")]
Resume = Annotated[
    Text,
    Option(
        metavar="RUN|auto",
        help="Continue a run; auto: the newest unfinished one with this config, of several seeds only what is missing.",
    ),
]
Debug = Annotated[bool, Option("--debug", help="Tracebacks; check every tensor, profile, write debug/ into the run.")]


def split(words: list[str]) -> tuple[str | None, list[str]]:
    """The spec among the positional arguments, and the overrides."""
    specs = [word for word in words if word.startswith("+experiment=") or ("=" not in word and word[:1] != "~")]
    if len(specs) > 1:
        raise ConfigError(specs[1], f"a second spec besides '{specs[0]}'", one_spec(specs))
    return (specs[0] if specs else None), [word for word in words if word not in specs]


def option_overrides(
    override: Texts, env_kwargs: Texts, max_timesteps: Text, total_timesteps: Text, ranks: int | None
) -> list[str]:
    """Options that are another way to write overrides."""
    budgets = {"max_timesteps": max_timesteps, "total_timesteps": total_timesteps, "runtime.ranks": ranks}
    arguments = [f"++environment.kwargs.{pair}" for pair in env_kwargs or []]
    return [*(override or []), *arguments, *(f"{name}={value}" for name, value in budgets.items() if value is not None)]


def with_agents_values(spec: str | None, overrides: list[str], required: bool) -> tuple[str | None, list[str]]:
    """The spec and overrides with the values that W&B's agent gives, if one started us."""
    from ludus.sweeps import agent

    return agent.merged(spec, overrides, agent.values(required=required))


def stopped_code(code: int) -> int:
    """Exit code of a run that was stopped early, which W&B's agent would take for a failure."""
    from ludus.sweeps import agent

    return agent.exit_code(code)


def pick_spec(spec: str | None, config_id: str | None, config: str | None) -> str:
    """The spec, which may be given in one of three ways."""
    given = {"SPEC": spec, "--config_id": config_id, "--config": config}
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        raise ConfigError(" and ".join(named), "both name what to train", "keep one of them")
    chosen = next(iter(named.values()), DEFAULT)
    if ":" not in chosen and "=" not in chosen and not chosen.endswith((".yaml", ".yml", ".json")):
        from ludus.config.compose import find_targets

        print_targets(chosen)
        first = next((target.spec for target in find_targets(chosen)), f"{chosen}:ppo")
        raise ConfigError(chosen, "names no variant", f"write Env:variant, such as {first}")
    return chosen


def print_targets(search: str | None) -> int:
    """Print every `Env:variant` that fits, with its description."""
    from ludus.config.compose import find_targets

    targets = find_targets(search)
    width = max((len(target.spec) for target in targets), default=0)
    for target in targets:
        line = f"{target.spec:<{width}}  {target.description}".rstrip()
        print("".join(char if char.isprintable() else " " for char in line))
    return 0


def jobs_of(spec: str, overrides: list[str], seed: str | None, tags: list[str]) -> list[Resolved]:
    """One resolved experiment for each seed of `--seed`."""
    seeds = [] if seed is None else numbers("--seed", seed, "1,2,3", least=0)
    each = [[*overrides, f"seed={number}"] for number in seeds] or [overrides]
    return [resolve(spec, words, tags) for words in each]


def resolve(spec: str, overrides: list[str], tags: list[str]) -> Resolved:
    """The resolved experiment with the given tags; with one environment if a debugger is attached."""
    from ludus.config.compose import load

    resolved = load(spec, overrides)
    further = []
    if tags:
        from ludus.archive.tags import check

        for tag in tags:
            check(tag, f"--tag {tag}"[:80])
        quoted = [repr(tag) for tag in (*resolved.config.experiment.tags, *tags)]
        further.append(f"experiment.tags=[{','.join(quoted)}]")
    if debugger_attached():
        further += debugger_overrides(resolved.config)
        print("debugger attached: one environment in this process, whole rollouts as batches", file=sys.stderr)
    return load(spec, [*overrides, *further]) if further else resolved


def debugger_attached() -> bool:
    """Whether a debugger runs this process; pdb without breakpoints sets no trace function but is on the stack."""
    if sys.gettrace() is not None or "debugpy" in sys.modules:
        return True
    frame = sys._getframe().f_back
    while frame is not None and frame.f_globals.get("__name__") != "bdb":
        frame = frame.f_back
    return frame is not None


def debugger_overrides(config: ExperimentConfig) -> list[str]:
    """One environment in this process; a batch size in steps may no longer divide the rollout, so it is a fraction."""
    batch = getattr(config.algorithm.config, "batch_size", 0)
    whole = ["algorithm.batch_size=1.0"] if batch > 1 else []
    return ["environment.num_envs=1", "environment.vectorization=sync", *whole]


def print_config(resolved: Resolved, kind: str, package: str | None) -> int:
    """Print the resolved config, or a part of it, as YAML; what is to be said about it as comments."""
    from ludus.config.read import to_yaml
    from ludus.config.validate import MISSING, select
    from ludus.text import did_you_mean

    if kind != "job":
        raise ConfigError(f"--cfg {kind}", "only the job's config exists", "write --cfg job")
    data = resolved.data
    part = data if package in (None, "_global_") else select(data, tuple(package.split(".")))
    if part is MISSING:
        raise ConfigError(f"--package {package}", "no such part", did_you_mean(package, data))
    for remark in resolved.remarks:
        print(f"# {remark}")
    print(to_yaml(part), end="")
    return 0


def plugins_of(spec: str, overrides: list[str], named: list[Path] | None) -> list[Plugin]:
    """The plugins that a command names, and those of the run that its spec names, imported."""
    from ludus.archive.run_plugins import load_for_spec

    return load_for_spec(spec, overrides, named)


def start_early() -> None:
    """Let processes that will train import what they need while the command line is still read."""
    from ludus.sweeps.engines.local import warm_up

    warm_up()


def confirmed(jobs: list[Resolved]) -> bool:
    """Ask a user at a terminal whether to train, and whether a program that a file names may be started."""
    from ludus.archive import consent
    from ludus.session.ranks import leads

    if not leads():  # of several ranks only the first asks
        return True
    if can_answer():
        config = jobs[0].config
        names = ", ".join(str(job.config.experiment.seed) for job in jobs)
        place, budget = config.environment.id or "stored steps", config.training.budget
        print(f"{config.algorithm.name} on {place}, {budget.total:,} {budget.noun}, seed {names}")
        if not agrees("Start training? [Y/n] ", silence=True):
            return False
    for job in jobs:
        consent.ask(job)
    return True
