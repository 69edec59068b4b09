"""Training sessions: begin a run or go on with one, in a folder that no other process touches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ludus import switches
from ludus.config.compose import Resolved, config_hash, dump, load, parse, to_yaml
from ludus.config.read import digest, plain, read_file
from ludus.config.schema import ExperimentConfig
from ludus.errors import ConfigError, DataError
from ludus.envs.suites import suite_of
from ludus.experiment import build
from ludus.home import Home
from ludus.orchestration.orchestrator import Orchestrator
from ludus.policy import write_cut
from ludus.run import Run
from ludus.runs import checkpoint, consent, history, provenance, rebuild
from ludus.runs.differences import Difference, differences, refuse_what_may_not_change, refuse_what_was_edited
from ludus.runs.lock import RunLock
from ludus.runs.store import RunFolder, safe_name
from ludus.session.finish import finish
from ludus.session.loading import Transfer, load_state, restore, rewind_metrics, transfer, without_buffers
from ludus.session.signals import stopping


def train(
    resolved: Resolved,
    *,
    runs_dir: Path,
    init_from: str | None = None,
    optimizer: bool = False,
    debug: bool = False,
) -> Run:
    """Train a new run to its end; its folder is made only once everything is built and fits."""
    config = resolved.config
    start = start_of(RunFolder.load(runs_dir, init_from), optimizer=optimizer) if init_from else None
    runs_dir = runs_dir.absolute()  # an environment may change the working directory
    with home_of(resolved, runs_dir, debug=debug) as home:

        def create() -> RunFolder:
            folder = RunFolder.create(
                runs_dir,
                run_name(resolved),
                config_yaml=to_yaml(config),
                config_hash=config_hash(config),
                spec=resolved.spec,
                overrides=resolved.overrides,
                start=start,
            )
            home.meta = folder.meta()
            if config.environment.id and not suite_of(config.environment.id).alone:
                write_cut(folder, config)
            return folder

        home.create = create
        begin_with(home, start, runs_dir)
        return work(home)


def home_of(resolved: Resolved, root: Path, *, debug: bool) -> Home:
    """The home of a run of this config; the user's alert command is used only with consent."""
    program, refusal = consent.alert_command(resolved)
    title = " ".join([resolved.spec, *resolved.overrides])
    home = Home(resolved.config, title, root, program=program, debug=debug)
    home.warnings += [refusal] if refusal else []
    return home


def work(home: Home) -> Run:
    """Build the run, train it to its end and say how it went."""
    run, folder = build(home.config, home=home), home.folder
    assert folder is not None
    run.folder = folder.path
    for note in home.notes:
        home.say(note)
        if not switches.session_logs():
            folder.log(note)
    for warning in home.warnings:
        home.warn(warning)
    folder.set_status("running", compiled=bool(run.compiler.sizes), **run.progress.counters)
    with stopping(run):
        Orchestrator(run).run()
        run.close()
        finish(run, folder)
    return run


def begin_with(home: Home, start: Mapping[str, Any] | None, runs_dir: Path) -> None:
    """A new run may begin with the weights of another one, or with the whole state of `training.resume_path`."""
    if start:
        home.checks.append(lambda run: home.notes.extend(begin_from(run, start, runs_dir).lines()))
    named = home.config.training.resume_path
    if named:
        path = Path(named).absolute()
        state = checkpoint.load(path)

        def load_state(run: Run) -> None:
            run.buffers.source = path.resolve().parents[1] / "buffers"
            restore(run, state, named)

        home.loads.append(load_state)


def unfinished(config: ExperimentConfig, runs_dir: Path) -> str | None:
    """The newest unfinished run of exactly this config; refused if a process is training it."""
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
    """Whether the run has a checkpoint, or died before its first row and can start again."""
    return bool(checkpoint.checkpoints(folder)) or not history.last_row(folder)


def _number(folder: Path) -> int:
    number = rebuild.meta(folder).get("number")
    return number if isinstance(number, int) else 0


def start_of(other: RunFolder, *, optimizer: bool) -> dict[str, Any]:
    """The source of the initial weights, for meta.json: `verify` needs the same ones."""
    return {"run": other.id, "step": checkpoint.find(other.path, other.checkpoint).name, "optimizer": optimizer}


def begin_from(run: Run, start: Mapping[str, Any], runs_dir: Path) -> Transfer:
    """Copy the weights of another run, as far as they fit."""
    if not isinstance(start, Mapping) or not start.keys() >= {"run", "step", "optimizer"}:
        raise DataError("meta.json: start", "names no weights to begin with", "train with --init-from RUN")
    other = RunFolder.load(runs_dir, f"{start['run']}/{start['step']}")
    return transfer(run, load_state(other)[0], optimizer=bool(start["optimizer"]))


def resume(
    reference: str, overrides: Sequence[str], *, runs_dir: Path, debug: bool = False, rebuild_buffer: bool = False
) -> Run | None:
    """Continue a run exactly from its newest good checkpoint; None if it has already finished."""
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
    resolved = Resolved(changed.config, str(meta.get("spec") or folder.id), tuple(overrides), changed.origin)
    with home_of(resolved, folder.path, debug=debug) as home:
        home.meta = meta
        home.hold(folder)
        if not checkpoint.checkpoints(folder.path) and can_go_on(folder.path):
            begin_again(home, folder, runs_dir)
        else:
            go_on(home, folder, saved, rebuild_buffer=rebuild_buffer)
        home.loads.append(lambda run: write_down(home, run, folder, changes))
        return work(home)


def budget_field(folder: RunFolder) -> str:
    """The setting to raise so that a finished run can continue."""
    config = parse(read_file(folder.config_path), str(folder.config_path))
    return "total_updates" if config.training.offline else "total_timesteps"


def goes_back(folder: RunFolder) -> bool:
    """Whether a reference names a checkpoint that is not the newest."""
    if folder.checkpoint is None:
        return False
    return checkpoint.find(folder.path, folder.checkpoint) != checkpoint.find(folder.path, "last")


def begin_again(home: Home, folder: RunFolder, runs_dir: Path) -> None:
    """Start a run again that was killed before its first checkpoint, with the same config and seed."""
    made_with = home.meta.get("config_hash")
    if made_with and made_with != _digest(folder):
        remedy = f"undo that, or train it as a new run: ludus train {folder.config_path}"
        raise ConfigError(str(folder.config_path), "was edited after the run was made", remedy)

    begin_with(home, home.meta.get("start"), runs_dir)
    home.loads.append(lambda _: rewind_metrics(folder.path, 0))
    home.notes.append("no checkpoint was written before the run ended: it begins again, with the same seed")


def go_on(home: Home, folder: RunFolder, saved: ExperimentConfig, *, rebuild_buffer: bool) -> None:
    """Continue from a checkpoint; later checkpoints and rows are set aside."""
    state, notes, path = load_state(folder)
    edited = edited_since(checkpoint.trained(state.get("about")), saved, path)
    refuse_what_was_edited(edited, folder.config_path)

    def begin(run: Run) -> None:
        if rebuild_buffer:
            notes.append("the buffers begin empty and all episodes anew: this is not an exact resume")
        restore(run, without_buffers(run, state) if rebuild_buffer else state, str(path))
        folder.set_status("running", **run.progress.counters)
        best = run.best.env_steps if run.best else run.position
        later = checkpoint.supersede(folder.path, run.scheduler.checkpoint_name, best)
        if later:  # before the rows: a process killed in between would resume here, too
            notes.append(f"checkpoints later than where this run goes on are set aside: {', '.join(later)}")
        moved = rewind_metrics(folder.path, run.progress.epochs)
        notes.append(f"resumed at {run.position:,} {run.scheduler.budget.noun}, {moved} later rows set aside")
        notes.extend(f"changed in config.yaml since that checkpoint: {difference}" for difference in edited)
        home.notes += notes

    home.loads.append(begin)


def edited_since(trained: Mapping[str, Any], saved: ExperimentConfig, where: Path) -> list[Difference]:
    """Where config.yaml differs from the config of a checkpoint; fields that are new in this version have defaults."""
    return differences(dump(parse(trained, str(where))), dump(saved)) if trained else []


def write_down(home: Home, run: Run, folder: RunFolder, changes: Sequence[Difference]) -> None:
    """Write the present config and meta.json; note what has changed, also in the code, since the run began."""
    home.notes += [f"changed {change}" for change in changes]
    now, meta = provenance.code(), home.meta
    moved = provenance.moved(meta, now)
    if moved:
        earlier = meta.get("resumed")
        entry = {"env_steps": run.position, **now}
        meta["resumed"] = [*(earlier if isinstance(earlier, list) else []), entry]
    meta["config_hash"] = config_hash(home.config)
    if meta["config_hash"] != _digest(folder):
        folder.write_config(to_yaml(home.config))
    try:
        same = folder.meta() == meta
    except DataError:
        same = False
    if not same:
        folder.write_meta(meta)
    if moved:
        home.warnings.append(f"resumed with other code: {', '.join(moved)}; from here on the numbers may differ")


def _digest(folder: RunFolder) -> str:
    """The hash of config.yaml as it is written there."""
    return digest(plain(read_file(folder.config_path)))


def run_name(resolved: Resolved) -> str:
    """The name of the run folder: the experiment's name, or the spec if it has none of its own."""
    name = resolved.config.experiment.name
    return safe_name(resolved.spec) if name is None or resolved.spec.startswith(f"{name}:") else name
