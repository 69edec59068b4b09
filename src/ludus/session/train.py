"""Train a new run, in a folder that no other process touches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ludus.archive.store import RunFolder
from ludus.config.compose import Resolved, config_hash, to_yaml
from ludus.experiment import build
from ludus.orchestration.orchestrator import Orchestrator
from ludus.plugins import Plugin
from ludus.run import Run
from ludus.session.border import write_cut
from ludus.session.furnish import furnish
from ludus.session.loading import begin_from, start_of, stored_state
from ludus.session.ranks import follow, meet, ranks_of
from ludus.session.session import Session


def train(
    resolved: Resolved,
    *,
    runs_dir: Path,
    plugins: Sequence[Plugin] = (),
    init_from: str | None = None,
    optimizer: bool = False,
    debug: bool = False,
) -> Run:
    """Train a new run to its end; its folder is made only once everything is built and fits."""
    start = start_of(RunFolder.load(runs_dir, init_from), optimizer=optimizer) if init_from else None
    runs_dir = runs_dir.absolute()  # an environment may change the working directory
    load = stored_state(resolved.config)
    with ranks_of(resolved.config, plugins) as ranks, Session(resolved, debug=debug, plugins=plugins) as session:
        if ranks.rank > 0:
            return follow(resolved.config, ranks)
        run = build(resolved.config, will_checkpoint=True, ranks=ranks, say=session.say)
        session.admit(run, runs_dir)
        if start:
            session.notes += begin_from(run, start, runs_dir)
        folder = RunFolder.create(
            runs_dir,
            resolved.run_name,
            config_yaml=to_yaml(resolved.config),
            config_hash=config_hash(resolved.config),
            spec=resolved.spec,
            overrides=resolved.overrides,
            start=start,
        )
        write_cut(folder, run)
        session.meta = folder.meta()
        session.hold(folder)
        if plugins:
            session.meta["plugins"] = session.record_plugins()
            folder.write("meta.json", session.meta)
        furnish(session, run)
        load(run)
        with session.training(run):
            meet(run)
            Orchestrator(run).run()
    return run
