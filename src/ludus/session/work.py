"""One process at work on one run folder: what watches the run, the lock, the training, the end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus import switches
from ludus.config.compose import Resolved, dump
from ludus.envs.make import probe
from ludus.errors import DataError
from ludus.metrics.sinks.jsonl import read_rows
from ludus.orchestration import preflight
from ludus.orchestration.callbacks.bounds import Bounds
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.orchestration.callbacks.control import Control
from ludus.orchestration.callbacks.debug import Debug
from ludus.orchestration.callbacks.idle import Idle
from ludus.orchestration.callbacks.status import Status
from ludus.orchestration.callbacks.videos import Videos
from ludus.orchestration.orchestrator import Orchestrator
from ludus.orchestration.signals import stopping
from ludus.runs import consent
from ludus.runs.lock import RunLock
from ludus.runs.store import RunFolder
from ludus.seeding import Streams
from ludus.session.display import make_sinks, open_console, render_env
from ludus.session.finish import finish, record_failure
from ludus.session.parts import buffers_of, close, collector_of, compiler_of
from ludus.terminal import warn
from ludus.watch.alert_command import AlertCommand
from ludus.watch.monitor import Monitor
from ludus.watch.rules import Rules
from ludus.watch.stalled import Stalled
from ludus.watch.vitals import Vitals, one_decision

if TYPE_CHECKING:
    from ludus.console.live import Console


class Session:
    """One process at work on one run folder."""

    def __init__(self, resolved: Resolved, *, debug: bool = False) -> None:
        self.resolved, self.config, self.debug = resolved, resolved.config, debug
        self.console: Console | None = None
        self.monitor: Monitor | None = None
        self.run: Orchestrator
        self.program, self.refusal = consent.alert_command(resolved)
        self.began_in = Path.cwd()  # an environment may change it
        self.meta: dict[str, Any] = {}
        """What every checkpoint repeats of meta.json."""
        self._lock: RunLock

    def locked(self, folder: RunFolder) -> ExitStack:
        """Keeps every other process away from the run folder."""
        stack = ExitStack()
        folder.refuse_links()
        self._lock = RunLock(folder.path)
        self._lock.acquire()
        stack.callback(self._lock.release)
        return stack

    def attach(self, folder: RunFolder) -> None:
        """Everything that watches the run; before a state is loaded, since some of it is part of the state."""
        run, config, path = self.run, self.config, folder.path
        run.say = self.say
        buffers_of(run).attach(path / "buffers")
        streams, collector = Streams(config.experiment.seed), collector_of(run)
        checkpoints = Checkpoints(
            path,
            config.training.checkpoints,
            collector,
            streams,
            warn=self.warn,
            about={"config": dump(config), "meta": self.meta},
            confirm=self._lock.confirm,
        )
        run.callbacks += [Status(folder.set_status), Bounds(), Control(path, checkpoints.request)]
        if self.debug:
            run.callbacks.append(Debug(path))
        run.callbacks.append(checkpoints)
        video = config.training.evaluation.video
        if video.every_evaluations:  # after the checkpoints: a recording is linked beside the one it belongs to
            run.callbacks.append(Videos(path, video, partial(render_env, config), streams, warn=self.say))

    def go(self, folder: RunFolder, notes: Sequence[str] = (), warnings: Sequence[str] = ()) -> Orchestrator:
        """Train to the end and say how it went."""
        run = self.run
        with stopping(run):
            with ExitStack() as ending:
                ending.push(lambda _, error, __: record_failure(run, folder, error))
                ending.callback(close, run)
                ending.callback(run.recorder.close)
                self._open(folder, ending)
                for note in notes:
                    self.say(note)
                    if not switches.session_logs():
                        folder.log(note)
                for warning in warnings:
                    self.warn(warning)
                folder.set_status("running", compiled=bool(compiler_of(run).sizes), **run.progress.counters)
                run.run()
            finish(run, folder, self.console, self.monitor)
        return run

    def _open(self, folder: RunFolder, ending: ExitStack) -> None:
        """Sinks, alerts and the console."""
        run, config = self.run, self.config
        assert run.spaces is not None
        if self.debug:
            compiler_of(run).decline("--debug looks into every layer")
        memory, *warnings = preflight.check(config, run, folder.path)
        monitor = self.monitor = Monitor(Rules.load(), threshold=run.threshold, action_space=run.spaces.action)
        rows = folder.path / "metrics.jsonl"
        earlier = list(read_rows(rows)) if rows.exists() else []
        monitor.replay(earlier)
        run.callbacks.append(Idle(monitor))
        if self.program:
            command = AlertCommand(self.program, folder.id, cwd=self.began_in)
            monitor.listeners.append(command)
            ending.callback(command.close)
        run.vitals = Vitals(
            run.scheduler.budget,
            epoch=run.progress.epochs,
            position=run.position,
            seconds=run.seconds,
            act=one_decision(run.algorithm, run.spaces.observation),
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
        for warning in [*warnings, *self._about_environments()]:
            self.console.note(warning, "yellow")
        if self.refusal:
            self.warn(self.refusal)

    def _about_environments(self) -> list[str]:
        """What a person should know about the environments of the run."""
        if collector_of(self.run) is not None:
            return probe(self.config.environment)
        grid = self.config.training.evaluation
        if self.run.evaluator is None and (grid.every_epochs or grid.every_updates):
            return ["environment.id is not set: the run is not evaluated"]
        return []

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
