"""`ludus train`: from a command line to one run per seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ludus.cli.job import DEFAULT, confirmed, jobs_of, pick_spec, print_config, print_targets, split
from ludus.cli.options import RunsDir
from ludus.cli.plugin import Plugin, load_plugins
from ludus.errors import ConfigError

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
Seed = Annotated[Text, Option(metavar="N[,N...]", help="One run per seed.")]
MaxTimesteps = Annotated[Text, Option("--max-timesteps", "--max_timesteps", metavar="N", help="Budget in steps.")]
TotalTimesteps = Annotated[Text, Option("--total-timesteps", "--total_timesteps", metavar="N", help="The same.")]
Override = Annotated[Texts, Option(metavar="KEY=VALUE", help="One more override.")]
EnvKwargs = Annotated[
    Texts,
    Option("--env-kwargs", "--env_kwargs", metavar="KEY=VALUE", help="Argument of the environment's constructor."),
]
Tag = Annotated[Texts, Option(metavar="LABEL", help="Add a label to the run.")]
Cfg = Annotated[Text, Option(metavar="job", help="Print the resolved config and stop.")]
Package = Annotated[Text, Option(metavar="PATH", help="With --cfg: print only this part.")]
InitFrom = Annotated[Text, Option("--init-from", metavar="RUN[/@best]", help="Start from the weights of another run.")]
Resume = Annotated[
    Text, Option(metavar="RUN|auto", help="Continue a run; auto: the newest unfinished one with this config.")
]
Debug = Annotated[bool, Option("--debug", help="Tracebacks; check every tensor, profile, write debug/ into the run.")]


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
        return _resume(resume, spec or config_id or config, overrides, plugin, runs_dir, debug)
    init_from = init_from and init_from.removeprefix(f"{runs_dir}/")
    runs_dir = runs_dir.absolute()  # an environment may change the working directory, and there are several seeds
    jobs = jobs_of(pick_spec(spec, config_id, config), overrides, seed, tag or [])
    if cfg is not None:
        return print_config(jobs[0].config, cfg, package)
    if not quiet and not confirmed(jobs):
        return 0
    from ludus.session import resume as earlier
    from ludus.session import train as session
    from ludus.session.signals import EARLY

    for job in jobs:
        begun = earlier.unfinished(job.config, runs_dir) if resume else None
        run = earlier.resume(begun, [], runs_dir=runs_dir, debug=debug) if begun else None
        run = run or session.train(job, runs_dir=runs_dir, init_from=init_from, debug=debug)
        if run.interrupted and (run.stopped_early or job is not jobs[-1]):
            return EARLY
    return 0


def _resume(
    run: str, spec: str | None, overrides: list[str], plugin: list[Path] | None, runs_dir: Path, debug: bool
) -> int:
    """`ludus resume`, for users who look for it here."""
    if spec is not None:
        problem = f"a run has its own config, so '{spec}' cannot be used"
        raise ConfigError(f"--resume {run}", problem, "leave the spec out, or write --resume auto")
    from ludus.cli.resume import resume

    return resume(run, overrides, plugin=plugin, runs_dir=runs_dir, debug=debug)
