"""Go on with a run: exactly where its newest good checkpoint was taken, or from its beginning if it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ludus.archive import checkpoint, history, provenance, rebuild, run_plugins
from ludus.archive.differences import Difference, differences, refuse_what_may_not_change, refuse_what_was_edited
from ludus.archive.lock import RunLock
from ludus.archive.store import RunFolder
from ludus.config.compose import Resolved, config_hash, dump, load, parse, to_yaml
from ludus.config.read import digest, plain, read_file
from ludus.config.schema import ExperimentConfig
from ludus.errors import ConfigError, DataError
from ludus.experiment import build
from ludus.learning.ranks import Ranks
from ludus.orchestration.orchestrator import Orchestrator
from ludus.plugins import Plugin
from ludus.run import Run
from ludus.session.furnish import furnish
from ludus.session.loading import begin_from, load_state, restore, rewind_metrics, stored_state, without_buffers
from ludus.session.ranks import follow, meet, ranks_of
from ludus.session.session import Session


def resume(
    reference: str,
    overrides: Sequence[str],
    *,
    runs_dir: Path,
    plugins: Sequence[Plugin] = (),
    debug: bool = False,
    rebuild_buffer: bool = False,
) -> Run | None:
    """Continue a run exactly from its newest good checkpoint; None if it has finished, by its old budget and goal."""
    folder = RunFolder.load(runs_dir, reference)
    runs_dir = runs_dir.absolute()  # an environment may change the working directory
    folder = replace(folder, path=folder.path.absolute())
    saved = parse(read_file(folder.config_path), str(folder.config_path))
    changed = load(str(folder.config_path), overrides)
    changes = differences(dump(saved), dump(changed.config))
    refuse_what_may_not_change(changes)
    finished = rebuild.status(folder.path).get("state") == "finished" and not goes_back(folder)
    before, after = saved.training, changed.config.training
    if finished and after.budget.total <= before.budget.total and after.stop == before.stop:
        return None
    meta = rebuild.meta(folder.path)
    resolved = Resolved(changed.config, str(meta.get("spec") or folder.id), tuple(overrides), changed.origin)
    with (
        ranks_of(resolved.config, plugins) as ranks,
        Session(resolved, debug=debug, plugins=plugins) as session,
    ):
        if ranks.rank > 0:
            return follow(resolved.config, ranks)
        session.meta = meta
        session.hold(folder)
        if not checkpoint.checkpoints(folder.path) and can_go_on(folder.path):
            run = begin_again(session, runs_dir, ranks)
        else:
            run = go_on(session, saved, ranks, rebuild_buffer=rebuild_buffer)
        write_down(session, run, changes)
        with session.training(run):
            meet(run)
            Orchestrator(run).run()
    return run


def unfinished(config: ExperimentConfig, runs_dir: Path) -> str | None:
    """The newest unfinished run of exactly this config; refused if a process is training it."""
    from ludus.archive.index import Index

    wanted = config_hash(config)
    found = [record for record in Index(runs_dir).records() if record.config_hash == wanted]
    open_ones = [record for record in found if record.state != "finished" and can_go_on(record.folder)]
    if not open_ones:
        return None
    newest = max(open_ones, key=lambda record: (_number(record.folder), record.started or ""))
    if RunLock.is_held(newest.folder):
        remedy = "wait for it or stop it, or leave --resume auto out for a second run"
        raise ConfigError(str(newest.folder), "the unfinished run of this config is being trained", remedy)
    return newest.id


def finished(config: ExperimentConfig, runs_dir: Path) -> Path | None:
    """The newest finished run of exactly this config."""
    from ludus.archive.index import Index

    wanted = config_hash(config)
    found = [record for record in Index(runs_dir).records() if record.config_hash == wanted]
    done = [record.folder for record in found if record.state == "finished"]
    return max(done, key=_number, default=None)


def can_go_on(folder: Path) -> bool:
    """Whether the run has a checkpoint, or died before its first row and can start again."""
    return bool(checkpoint.checkpoints(folder)) or not history.last_row(folder)


def _number(folder: Path) -> int:
    number = rebuild.meta(folder).get("number")
    return number if isinstance(number, int) else 0


def budget_field(folder: RunFolder) -> str:
    """The setting to raise so that a finished run can continue."""
    config = parse(read_file(folder.config_path), str(folder.config_path))
    return "total_updates" if config.training.offline else "total_timesteps"


def goes_back(folder: RunFolder) -> bool:
    """Whether a reference names a checkpoint that is not the newest."""
    if folder.checkpoint is None:
        return False
    return checkpoint.find(folder.path, folder.checkpoint) != checkpoint.find(folder.path, "last")


def begin_again(session: Session, runs_dir: Path, ranks: Ranks) -> Run:
    """Start a run again that was killed before its first checkpoint, with the same config and seed."""
    folder, made_with, start = session.folder, session.meta.get("config_hash"), session.meta.get("start")
    if made_with and made_with != _digest(folder):
        remedy = f"undo that, or train it as a new run: ludus train {folder.config_path}"
        raise ConfigError(str(folder.config_path), "was edited after the run was made", remedy)
    load_stored = stored_state(session.config)
    run = build(session.config, will_checkpoint=True, ranks=ranks, say=session.say)
    session.admit(run, folder.path)
    if start:
        session.notes += begin_from(run, start, runs_dir)
    furnish(session, run)
    load_stored(run)
    rewind_metrics(folder.path, 0)
    session.notes.append("no checkpoint was written before the run ended: it begins again, with the same seed")
    return run


def go_on(session: Session, saved: ExperimentConfig, ranks: Ranks, *, rebuild_buffer: bool) -> Run:
    """Continue from a checkpoint; later checkpoints and rows are set aside."""
    folder = session.folder
    state, notes, path = load_state(folder)
    edited = edited_since(checkpoint.trained(state.get("about")), saved, path)
    refuse_what_was_edited(edited, folder.config_path)
    run = build(session.config, will_checkpoint=True, ranks=ranks, say=session.say)
    session.admit(run, folder.path)
    furnish(session, run)
    if rebuild_buffer:
        notes.append("the buffers begin empty and all episodes anew: this is not an exact resume")
    restore(run, without_buffers(run, state) if rebuild_buffer else state, str(path))
    folder.set_status("running", **run.progress.counters)
    best = run.best.env_steps if run.best else run.position
    later = checkpoint.supersede(folder.path, run.scheduler.checkpoint_name, best)
    if later:  # before the rows: a process killed in between would resume here, too
        notes.append(f"checkpoints later than where this run goes on are set aside: {', '.join(later)}")
    moved = rewind_metrics(folder.path, run.progress.epochs)
    aside = f", {moved} later rows set aside" if moved else ""
    notes.append(f"resumed at {run.position:,} {run.scheduler.budget.noun}{aside}")
    session.notes += [*notes, *(f"changed in config.yaml since that checkpoint: {change}" for change in edited)]
    return run


def edited_since(trained: Mapping[str, Any], saved: ExperimentConfig, where: Path) -> list[Difference]:
    """Where config.yaml differs from the config of a checkpoint; fields that are new in this version have defaults."""
    return differences(dump(parse(trained, str(where))), dump(saved)) if trained else []


def write_down(session: Session, run: Run, changes: Sequence[Difference]) -> None:
    """Write the present config and meta.json; note what has changed, also in the code, since the run began."""
    session.notes += [f"changed {change}" for change in changes]
    now, meta, folder = provenance.code(), session.meta, session.folder
    moved = provenance.moved(meta, now)
    before, plugins = run_plugins.parts(meta)[-1], session.record_plugins()
    if (old := run_plugins.described(before)) != (new := run_plugins.described(plugins)):
        moved.append(f"plugins {old or 'none'} -> {new or 'none'}")
    if moved or plugins != before:
        earlier = meta.get("resumed")
        entry = {"env_steps": run.position, **now, "plugins": plugins}
        meta["resumed"] = [*(earlier if isinstance(earlier, list) else []), entry]
    if moved:
        session.warnings.append(f"resumed with other code: {', '.join(moved)}; from here on the numbers may differ")
    meta["config_hash"] = config_hash(session.config)
    if meta["config_hash"] != _digest(folder):
        folder.write("config.yaml", to_yaml(session.config))
    try:
        same = folder.meta() == meta
    except DataError:
        same = False
    if not same:
        folder.write("meta.json", meta)


def _digest(folder: RunFolder) -> str:
    """The hash of config.yaml as it is written there."""
    return digest(plain(read_file(folder.config_path)))
