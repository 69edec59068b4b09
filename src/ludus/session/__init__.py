"""A training session: builds the run, gives it a folder and a face, trains, and says how it went."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ludus.config.compose import Resolved, config_hash, dump, load, parse, to_yaml
from ludus.config.read import digest, plain, read_file
from ludus.config.schema import ExperimentConfig
from ludus.errors import ConfigError, DataError
from ludus.experiment import build
from ludus.orchestration import preflight
from ludus.orchestration.orchestrator import Orchestrator
from ludus.orchestration.rewind import rewind_metrics
from ludus.orchestration.transfer import Transfer, transfer
from ludus.reports.differences import Difference, differences, refuse_what_may_not_change, refuse_what_was_edited
from ludus.runs import checkpoint, history, provenance, rebuild
from ludus.runs.lock import RunLock
from ludus.runs.store import RunFolder, safe_name
from ludus.session.loading import load_state, restore, without_buffers
from ludus.session.parts import buffers_of
from ludus.session.work import Session


def train(
    resolved: Resolved,
    *,
    runs_dir: Path,
    init_from: str | None = None,
    optimizer: bool = False,
    debug: bool = False,
) -> Orchestrator:
    """A new run from the resolved config to its last line; the folder appears only once everything is built."""
    config = resolved.config
    start = start_of(RunFolder.load(runs_dir, init_from), optimizer=optimizer) if init_from else None
    runs_dir = runs_dir.absolute()  # an environment may change the working directory
    session = Session(resolved, debug=debug)
    begin = prepare(session, start, runs_dir)
    folder = RunFolder.create(
        runs_dir,
        run_name(resolved),
        config_yaml=to_yaml(config),
        config_hash=config_hash(config),
        spec=resolved.spec,
        overrides=resolved.overrides,
        start=start,
    )
    with session.locked(folder):
        session.meta = folder.meta()
        return session.go(folder, begin(folder))


def prepare(session: Session, start: Mapping[str, Any] | None, runs_dir: Path) -> Callable[[RunFolder], list[str]]:
    """Build the run of a session and see that it fits; what is returned gives it its folder and its first state."""
    config = session.config
    path = Path(config.training.resume_path).absolute() if config.training.resume_path else None
    state = checkpoint.load(path) if path else None
    session.run = build(config, announce=session.say, will_checkpoint=True)
    preflight.check(config, session.run, runs_dir)
    moved = begin_from(session.run, start, runs_dir) if start else None

    def begin(folder: RunFolder) -> list[str]:
        session.attach(folder)
        if state is not None and path is not None:
            buffers_of(session.run).source = path.resolve().parents[1] / "buffers"
            restore(session.run, state, str(config.training.resume_path))
        return list(moved.lines()) if moved else []

    return begin


def unfinished(config: ExperimentConfig, runs_dir: Path) -> str | None:
    """The newest run of just this config that has not come to its end; refused if some process works on it."""
    from ludus.runs.index import Index

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


def can_go_on(folder: Path) -> bool:
    """Whether a resume has something to begin with: a checkpoint, or a run that died before its first one."""
    return bool(checkpoint.checkpoints(folder)) or not history.last_row(folder)


def _number(folder: Path) -> int:
    number = rebuild.meta(folder).get("number")
    return number if isinstance(number, int) else 0


def start_of(other: RunFolder, *, optimizer: bool) -> dict[str, Any]:
    """Which weights a run begins with, for its meta.json: `verify` needs the same ones."""
    return {"run": other.id, "step": checkpoint.find(other.path, other.checkpoint).name, "optimizer": optimizer}


def begin_from(run: Orchestrator, start: Mapping[str, Any], runs_dir: Path) -> Transfer:
    """Take over the weights of another run."""
    if not isinstance(start, Mapping) or not start.keys() >= {"run", "step", "optimizer"}:
        raise DataError("meta.json: start", "names no weights to begin with", "train with --init-from RUN")
    other = RunFolder.load(runs_dir, f"{start['run']}/{start['step']}")
    return transfer(run, load_state(other)[0], optimizer=bool(start["optimizer"]))


def resume(
    reference: str, overrides: Sequence[str], *, runs_dir: Path, debug: bool = False, rebuild_buffer: bool = False
) -> Orchestrator | None:
    """Go on with a run exactly where its newest good checkpoint was taken; None if there is nothing left to do."""
    folder = RunFolder.load(runs_dir, reference)
    runs_dir = runs_dir.absolute()  # an environment may change the working directory
    folder = replace(folder, path=folder.path.absolute())
    saved = parse(read_file(folder.config_path), str(folder.config_path))
    changed = load(str(folder.config_path), overrides)
    changes = differences(dump(saved), dump(changed.config))
    refuse_what_may_not_change(changes)
    finished = rebuild.status(folder.path).get("state") == "finished" and not goes_back(folder)
    if finished and changed.config.training.budget.total <= saved.training.budget.total:
        return None
    meta = rebuild.meta(folder.path)
    spec = str(meta.get("spec") or folder.id)
    session = Session(Resolved(changed.config, spec, tuple(overrides), changed.origin), debug=debug)
    session.meta = meta
    with session.locked(folder):
        if not checkpoint.checkpoints(folder.path) and can_go_on(folder.path):
            notes = begin_again(session, folder, runs_dir)
        else:
            notes = go_on(session, folder, saved, rebuild_buffer=rebuild_buffer)
        warnings = write_down(session, folder)
        return session.go(folder, [*notes, *(f"changed {c}" for c in changes)], warnings)


def budget_field(folder: RunFolder) -> str:
    """The field of `training` that has to grow for a finished run to go on."""
    config = parse(read_file(folder.config_path), str(folder.config_path))
    return "total_updates" if config.training.offline else "total_timesteps"


def goes_back(folder: RunFolder) -> bool:
    """Whether a reference asks for a checkpoint that is not the newest."""
    if folder.checkpoint is None:
        return False
    return checkpoint.find(folder.path, folder.checkpoint) != checkpoint.find(folder.path, "last")


def begin_again(session: Session, folder: RunFolder, runs_dir: Path) -> list[str]:
    """A run that was killed before its first checkpoint: its config, with the seed, is all that it needs."""
    made_with = session.meta.get("config_hash")
    if made_with and made_with != _digest(folder):
        remedy = f"undo that, or train it as a new run: ludus train {folder.config_path}"
        raise ConfigError(str(folder.config_path), "was edited after the run was made", remedy)
    notes = prepare(session, session.meta.get("start"), runs_dir)(folder)
    rewind_metrics(folder.path, 0)
    return [*notes, "no checkpoint was written before the run ended: it begins again, with the same seed"]


def go_on(session: Session, folder: RunFolder, saved: ExperimentConfig, *, rebuild_buffer: bool) -> list[str]:
    """Put the state of a checkpoint back; what comes later than it is set aside."""
    state, notes, path = load_state(folder)
    edited = edited_since(checkpoint.trained(state.get("about")), saved, path)
    refuse_what_was_edited(edited, folder.config_path)
    session.run = run = build(session.config, announce=session.say, will_checkpoint=True)
    session.attach(folder)
    if rebuild_buffer:
        state = without_buffers(run, state)
        notes.append("the buffers begin empty and all episodes anew: this is not an exact resume")
    restore(run, state, str(path))
    folder.set_status("running", **run.progress.counters)
    current, budget = run.scheduler.checkpoint_name, run.scheduler.budget
    later = checkpoint.supersede(folder.path, current, run.best.env_steps if run.best else run.position)
    if later:  # before the rows: whoever is killed in between goes on from here as well
        notes.append(f"checkpoints later than where this run goes on are set aside: {', '.join(later)}")
    moved = rewind_metrics(folder.path, run.progress.epochs)
    taken = [f"changed in config.yaml since that checkpoint: {difference}" for difference in edited]
    return [*notes, f"resumed at {run.position:,} {budget.noun}, {moved} later rows set aside", *taken]


def edited_since(trained: Mapping[str, Any], saved: ExperimentConfig, where: Path) -> list[Difference]:
    """What config.yaml says otherwise than a checkpoint; fields that are new in this version have their defaults."""
    return differences(dump(parse(trained, str(where))), dump(saved)) if trained else []


def write_down(session: Session, folder: RunFolder) -> list[str]:
    """config.yaml and meta.json as they are from here on; warnings about code that is not what it was."""
    now, meta = provenance.code(), session.meta
    moved = provenance.moved(meta, now)
    if moved:
        earlier = meta.get("resumed")
        entry = {"env_steps": session.run.position, **now}
        meta["resumed"] = [*(earlier if isinstance(earlier, list) else []), entry]
    meta["config_hash"] = config_hash(session.config)
    if meta["config_hash"] != _digest(folder):
        folder.write_config(to_yaml(session.config))
    try:
        same = folder.meta() == meta
    except DataError:
        same = False
    if not same:
        folder.write_meta(meta)
    return [f"resumed with other code: {', '.join(moved)}; from here on the numbers may differ"] if moved else []


def _digest(folder: RunFolder) -> str:
    """The hash of config.yaml as it is written there."""
    return digest(plain(read_file(folder.config_path)))


def run_name(resolved: Resolved) -> str:
    """The experiment's name, with the variant where it is only the environment's."""
    name = resolved.config.experiment.name
    return safe_name(resolved.spec) if name is None or resolved.spec.startswith(f"{name}:") else name
