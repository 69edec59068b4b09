"""`ludus train`: from a command line to one run per seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ludus.cli import job as asked
from ludus.cli.flags import spec_of
from ludus.cli.options import LastLines, Plugin, RunsDir
from ludus.cli.outcome import tell
from ludus.cli.resume import resume_instead

if TYPE_CHECKING:
    from ludus.config.compose import Resolved
    from ludus.plugins import Plugin as Loaded


def train(
    words: asked.Words = None,
    quiet: asked.Quiet = False,
    config_id: asked.ConfigId = None,
    config: asked.Config = None,
    list_envs: asked.ListEnvs = False,
    seed: asked.Seed = None,
    max_timesteps: asked.MaxTimesteps = None,
    total_timesteps: asked.TotalTimesteps = None,
    override: asked.Override = None,
    env_kwargs: asked.EnvKwargs = None,
    ranks: asked.Ranks = None,
    wandb_sweep: asked.WandbSweep = False,
    tag: asked.Tag = None,
    cfg: asked.Cfg = None,
    package: asked.Package = None,
    plugin: Plugin = None,
    init_from: asked.InitFrom = None,
    resume: asked.Resume = None,
    jobs: asked.AtOnce = None,
    engine: asked.Engine = "local",
    runs_dir: RunsDir = Path("runs"),
    json: LastLines = False,
    debug: asked.Debug = False,
) -> int:
    """Train an experiment."""
    spec, overrides = asked.split(words or [])
    if list_envs:
        return asked.print_targets(spec)
    overrides += asked.option_overrides(override, env_kwargs, max_timesteps, total_timesteps, ranks)
    if resume not in (None, "auto"):
        return resume_instead(resume, spec or config_id or config, overrides, plugin, runs_dir, json, debug)
    spec, overrides = asked.with_agents_values(spec, overrides, wandb_sweep)
    if not (spec or config_id or config):
        spec, overrides = spec_of(overrides)
    spec = asked.pick_spec(spec, config_id, config)
    if jobs is not None and engine == "local" and cfg is None:
        asked.start_early()
    plugins = asked.plugins_of(spec, overrides, plugin)
    runs = asked.jobs_of(spec, overrides, seed, tag or [])
    if cfg is not None:
        return asked.print_config(runs[0], cfg, package)
    if not quiet and not asked.confirmed(runs):
        return 0
    if jobs is not None or engine != "local":
        from ludus.cli.many import options_of, train_many

        options = options_of(runs_dir, plugin, init_from, debug=debug)
        return train_many(runs, options, runs_dir, jobs, engine, json=json, unfinished=resume is not None)
    return _train(runs, plugins, init_from, runs_dir, json, debug, unfinished=resume is not None)


def _train(
    jobs: list[Resolved],
    plugins: list[Loaded],
    init_from: str | None,
    runs_dir: Path,
    json: bool,
    debug: bool,
    *,
    unfinished: bool,
) -> int:
    """One run after the other; of `unfinished` ones the newest goes on, and of several seeds finished ones are kept."""
    from ludus.session import resume, train
    from ludus.session.signals import EARLY

    init_from = init_from and init_from.removeprefix(f"{runs_dir}/")
    runs_dir = runs_dir.absolute()  # an environment may change the working directory, and there are several seeds
    done: list[Path] = []
    code = 0
    for job in jobs:
        kept = resume.finished(job.config, runs_dir) if unfinished and len(jobs) > 1 else None
        if kept is not None:
            done.append(kept)
            continue
        begun = resume.unfinished(job.config, runs_dir) if unfinished else None
        run = resume.resume(begun, [], runs_dir=runs_dir, plugins=plugins, debug=debug) if begun else None
        run = run or train.train(job, runs_dir=runs_dir, plugins=plugins, init_from=init_from, debug=debug)
        if run.folder is not None:  # only rank 0 has one
            done.append(run.folder)
        if run.interrupted and (run.stopped_early or job is not jobs[-1]):
            code = asked.stopped_code(EARLY)
            break
    if done:
        tell(done, json=json)
    return code
