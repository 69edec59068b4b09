"""A training session: builds the run, gives it a folder and a face, trains, and says how it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.config import files
from ludus.config.compose import Resolved, config_hash, dump, load, parse, to_yaml
from ludus.config.schema import ExperimentConfig
from ludus.data.streams import Streams
from ludus.envs.make import probe
from ludus.errors import DataError
from ludus.experiment import build
from ludus.metrics import switches
from ludus.metrics.alert_command import AlertCommand
from ludus.metrics.monitor import Monitor
from ludus.metrics.rules import Rules
from ludus.metrics.sinks.jsonl import read_rows
from ludus.metrics.stalled import Stalled
from ludus.metrics.streams import warn
from ludus.metrics.vitals import Vitals, one_decision
from ludus.orchestration import preflight
from ludus.orchestration.callbacks.bounds import Bounds
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.orchestration.callbacks.control import Control
from ludus.orchestration.callbacks.debug import Debug
from ludus.orchestration.callbacks.status import Status
from ludus.orchestration.callbacks.videos import Videos
from ludus.orchestration.orchestrator import Orchestrator
from ludus.orchestration.rewind import rewind_metrics
from ludus.orchestration.signals import stopping
from ludus.orchestration.transfer import Transfer, transfer
from ludus.runs import checkpoint
from ludus.runs.differences import differences, refuse_what_may_not_change
from ludus.runs.lock import RunLock
from ludus.runs.store import Run, safe_name
from ludus.session.face import make_sinks, open_console, render_env
from ludus.session.loading import load_state, restore, without_buffers
from ludus.session.outcome import counters, finish, record_failure
from ludus.session.parts import buffers_of, close, collector_of

if TYPE_CHECKING:
    from ludus.metrics.sinks.console import Console


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
    start = start_of(Run.load(runs_dir, init_from), optimizer=optimizer) if init_from else None
    source = Path(config.training.resume_path).absolute() if config.training.resume_path else None
    state = checkpoint.load(source) if source else None
    runs_dir = runs_dir.absolute()  # an environment may change the working directory
    session = Session(resolved, debug=debug)
    session.run = build(config, announce=session.say, savable=True)
    preflight.check(config, session.run)
    moved = begin_from(session.run, start, runs_dir) if start else None
    folder = Run.create(
        runs_dir,
        run_name(resolved),
        config_yaml=to_yaml(config),
        config_hash=config_hash(config),
        spec=resolved.spec,
        overrides=resolved.overrides,
        start=start,
    )
    session.attach(folder)
    if state is not None and source is not None:
        buffers_of(session.run).source = source.resolve().parents[1] / "buffers"
        restore(session.run, state, str(config.training.resume_path))
    return session.go(folder, moved.lines() if moved else ())


def unfinished(config: ExperimentConfig, runs_dir: Path) -> str | None:
    """The newest run of just this config that nobody works on and that has not come to its end."""
    from ludus.runs.index import Index

    wanted = config_hash(config)
    found = [record for record in Index(runs_dir).records() if record.config_hash == wanted]
    open_ones = [record for record in found if record.state != "finished" and not RunLock.is_held(record.folder)]
    saved = [record for record in open_ones if checkpoint.checkpoints(record.folder)]
    return max(saved, key=lambda record: record.started or "").id if saved else None


def start_of(other: Run, *, optimizer: bool) -> dict[str, Any]:
    """Which weights a run begins with, for its meta.json: `verify` needs the same ones."""
    return {"run": other.id, "step": checkpoint.find(other.folder, other.checkpoint).name, "optimizer": optimizer}


def begin_from(run: Orchestrator, start: Mapping[str, Any], runs_dir: Path) -> Transfer:
    """Take over the weights of another run."""
    other = Run.load(runs_dir, f"{start['run']}/{start['step']}")
    return transfer(run, load_state(other)[0], optimizer=bool(start["optimizer"]))


def resume(
    reference: str, overrides: Sequence[str], *, runs_dir: Path, debug: bool = False, rebuild_buffer: bool = False
) -> Orchestrator | None:
    """Go on with a run exactly where its newest good checkpoint was taken; None if there is nothing left to do."""
    folder = Run.load(runs_dir, reference)
    folder = replace(folder, folder=folder.folder.absolute())  # an environment may change the working directory
    saved = parse(files.read(folder.config_path), str(folder.config_path))
    changed = load(str(folder.config_path), overrides)
    changes = differences(dump(saved), dump(changed.config))
    refuse_what_may_not_change(changes)
    finished = folder.status().get("state") == "finished"
    if finished and changed.config.training.total_timesteps <= saved.training.total_timesteps:
        return None
    spec = str(folder.meta().get("spec") or folder.id)
    session = Session(Resolved(changed.config, spec, tuple(overrides)), debug=debug)
    with session.locked(folder):
        state, notes, path = load_state(folder)
        session.run = build(changed.config, announce=session.say, savable=True)
        session.attach(folder)
        if rebuild_buffer:
            state = without_buffers(session.run, state)
            notes.append("the buffers begin empty and all episodes anew: this is not an exact resume")
        restore(session.run, state, str(path))
        moved = rewind_metrics(folder.folder, session.run.clock.epochs)
        if changes:
            folder.write_config(to_yaml(changed.config))
        steps = session.run.clock.env_steps
        notes += [f"resumed at {steps:,} steps, {moved} later rows set aside", *(f"changed {c}" for c in changes)]
        return session.go(folder, notes)


class Session:
    """One process at work on one run folder."""

    def __init__(self, resolved: Resolved, *, debug: bool = False) -> None:
        self.resolved, self.config, self.debug = resolved, resolved.config, debug
        self.console: Console | None = None
        self.monitor: Monitor | None = None
        self.run: Orchestrator
        self._lock: RunLock | None = None

    def locked(self, folder: Run) -> ExitStack:
        """Keeps every other process away from the run folder."""
        stack = ExitStack()
        self._lock = RunLock(folder.folder)
        self._lock.acquire()
        stack.callback(self._lock.release)
        return stack

    def attach(self, folder: Run) -> None:
        """Everything that watches the run; before a state is loaded, since some of it is part of the state."""
        run, config, path = self.run, self.config, folder.folder
        run.say = self.say
        buffers_of(run).attach(path / "buffers")
        streams, collector = Streams(config.experiment.seed), collector_of(run)
        checkpoints = Checkpoints(path, config.training.checkpoints, collector, streams, warn=self.warn)
        run.callbacks += [Status(folder.set_status), Bounds(), Control(path, checkpoints.request)]
        if self.debug:
            run.callbacks.append(Debug(path))
        run.callbacks.append(checkpoints)
        video = config.training.evaluation.video
        if video.every_evaluations:  # after the checkpoints: a recording is linked beside the one it belongs to
            run.callbacks.append(Videos(path, video, partial(render_env, config), streams, warn=self.say))

    def go(self, folder: Run, notes: Sequence[str] = ()) -> Orchestrator:
        """Train to the end and say how it went."""
        run = self.run
        with stopping(run):
            with ExitStack() as ending:
                if self._lock is None:
                    ending.enter_context(self.locked(folder))
                ending.push(lambda _, error, __: record_failure(run, folder, error))
                ending.callback(close, run)
                ending.callback(run.recorder.close)
                self._open(folder, ending)
                for note in notes:
                    self.say(note)
                    if not switches.session_logs():
                        folder.log(note)
                folder.set_status("running", **counters(run))
                run.run()
            finish(run, folder, self.console, self.monitor)
        return run

    def _open(self, folder: Run, ending: ExitStack) -> None:
        """Sinks, alerts and the console."""
        run, config, env = self.run, self.config, collector_of(self.run).env
        memory, *warnings = preflight.check(config, run, folder.folder)
        monitor = self.monitor = Monitor(Rules.load(), threshold=run.threshold, action_space=env.action_space)
        rows = folder.folder / "metrics.jsonl"
        earlier = list(read_rows(rows)) if rows.exists() else []
        monitor.replay(earlier)
        if config.logging.alert_command:
            command = AlertCommand(config.logging.alert_command, folder.id)
            monitor.listeners.append(command)
            ending.callback(command.close)
        clock = run.clock
        run.vitals = Vitals(
            run.scheduler.total_steps,
            epoch=clock.epochs,
            env_steps=clock.env_steps,
            seconds=run.seconds,
            act=one_decision(run.algorithm, env.observation_space),
        )
        try:
            run.recorder.sinks += [*make_sinks(config, folder), monitor]
        except OSError as error:
            raise DataError(
                str(error.filename), f"cannot be written: {error.strerror}", "remove what is there"
            ) from None
        if config.logging.stalled_seconds:
            run.recorder.sinks.append(Stalled(monitor, config.logging.stalled_seconds))
        self.console = open_console(run, self.resolved, folder, monitor, memory, earlier)
        run.recorder.sinks.append(self.console)
        for warning in [*warnings, *probe(config.environment)]:
            self.console.note(warning, "yellow")

    def warn(self, message: str) -> None:
        """Something a person must hear of, even if the console is silent."""
        self.say(message)
        if self.console is not None and (switches.quiet() or not self.config.logging.console):
            warn(message)

    def say(self, message: str) -> None:
        """A note above the table, or on stderr before there is one."""
        if self.console is not None:
            self.console.note(message)
        else:
            warn(message)


def run_name(resolved: Resolved) -> str:
    """The experiment's name, with the variant where it is only the environment's."""
    name = resolved.config.experiment.name
    return safe_name(resolved.spec) if name is None or resolved.spec.startswith(f"{name}:") else name
