"""`ludus resume RUN`: continue a run, or start another one from its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from ludus.cli.options import Checkpointed, LastLines, Overrides, Plugin, RunsDir
from ludus.cli.outcome import tell
from ludus.errors import ConfigError

Mode = Literal["exact", "warm_start", "warm_start_optimizer"]
_REBUILD = "Start with empty buffers if the stored steps are damaged."


def resume(
    run: Checkpointed,
    overrides: Overrides = None,
    mode: Annotated[Mode, Option(help="exact continues bit for bit; the others start a new run.")] = "exact",
    rebuild_buffer: Annotated[bool, Option("--rebuild-buffer", help=_REBUILD)] = False,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
    json: LastLines = False,
    debug: Annotated[bool, Option("--debug", help="As for ludus train.")] = False,
) -> int:
    """Continue a run from its newest good checkpoint."""
    from ludus.archive import consent, rebuild
    from ludus.archive.run_plugins import load_for
    from ludus.archive.store import RunFolder
    from ludus.config.compose import Resolved, load
    from ludus.session.resume import budget_field
    from ludus.session.resume import resume as go_on
    from ludus.session.signals import EARLY
    from ludus.session.train import train
    from ludus.terminal import can_answer

    folder = RunFolder.load(runs_dir, run)
    plugins = load_for(folder, plugin)
    if mode != "exact" or can_answer():
        changed = load(str(folder.config_path), overrides or [])
        consent.ask(changed)
    if mode == "exact":
        done = go_on(
            run, overrides or [], runs_dir=runs_dir, plugins=plugins, debug=debug, rebuild_buffer=rebuild_buffer
        )
        if done is None:
            more = f"a larger training.{budget_field(folder)}, or another goal of training.stop,"
            print(f"{run}: has already finished; give it {more} to go on")
            return 0
    else:
        spec = str(rebuild.meta(folder.path).get("spec") or folder.id)
        resolved = Resolved(changed.config, spec, tuple(overrides or []), changed.origin)
        optimizer = mode == "warm_start_optimizer"
        done = train(resolved, runs_dir=runs_dir, plugins=plugins, init_from=run, optimizer=optimizer, debug=debug)
    if done.folder is not None:  # only rank 0 has one
        tell([done.folder], json=json)
    return EARLY if done.stopped_early else 0


def resume_instead(
    run: str, spec: str | None, overrides: list[str], plugin: list[Path] | None, runs_dir: Path, json: bool, debug: bool
) -> int:
    """`ludus resume`, for users who look for it here."""
    if spec is not None:
        problem = f"a run has its own config, so '{spec}' cannot be used"
        raise ConfigError(f"--resume {run}", problem, "leave the spec out, or write --resume auto")
    return resume(run, overrides, plugin=plugin, runs_dir=runs_dir, json=json, debug=debug)
