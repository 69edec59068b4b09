"""`ludus resume RUN`: continue a run, or start another one from its weights."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ludus.cli.options import RunsDir
from ludus.cli.plugin import Plugin, load_plugins


class Mode(StrEnum):
    """How much of the run's state is used."""

    exact = "exact"
    warm_start = "warm_start"
    warm_start_optimizer = "warm_start_optimizer"


def resume(
    run: Annotated[str, typer.Argument(help="Run id, unique prefix, @last or @best; add /@best, /@last or /step=N.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[OVERRIDES]", help="key=value")] = None,
    mode: Annotated[Mode, typer.Option(help="exact continues bit for bit; the others start a new run.")] = Mode.exact,
    rebuild_buffer: Annotated[
        bool, typer.Option("--rebuild-buffer", help="Start with empty buffers if the stored steps are damaged.")
    ] = False,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
    debug: Annotated[bool, typer.Option("--debug", help="As for ludus train.")] = False,
) -> int:
    """Continue a run from its newest good checkpoint."""
    from ludus.config.compose import Resolved, load
    from ludus.runs import consent, rebuild
    from ludus.runs.store import RunFolder
    from ludus.session.resume import budget_field
    from ludus.session.resume import resume as go_on
    from ludus.session.signals import EARLY
    from ludus.session.train import train

    load_plugins(plugin)
    folder = RunFolder.load(runs_dir, run)
    if mode is not Mode.exact or consent.can_answer():
        changed = load(str(folder.config_path), overrides or [])
        consent.ask(changed)
    if mode is Mode.exact:
        done = go_on(run, overrides or [], runs_dir=runs_dir, debug=debug, rebuild_buffer=rebuild_buffer)
        if done is None:
            print(f"{run}: has already finished; give it a larger training.{budget_field(folder)} to go on")
            return 0
    else:
        spec = str(rebuild.meta(folder.path).get("spec") or folder.id)
        resolved = Resolved(changed.config, spec, tuple(overrides or []), changed.origin)
        done = train(
            resolved, runs_dir=runs_dir, init_from=run, optimizer=mode is Mode.warm_start_optimizer, debug=debug
        )
    return EARLY if done.stopped_early else 0
