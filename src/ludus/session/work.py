"""One process at work on one run folder: the lock, signals, training, and the end, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from ludus import switches
from ludus.config.compose import Resolved
from ludus.display import Voice
from ludus.experiment import build
from ludus.orchestration.orchestrator import Orchestrator
from ludus.run import Run
from ludus.runs import consent
from ludus.runs.lock import RunLock
from ludus.runs.store import RunFolder
from ludus.session.finish import finish, record_failure
from ludus.session.signals import stopping


class Session:
    """A `Home` for a run. As a context it holds the lock of the folder and records how the run ended.

    `make_folder` is called once everything is built and fits, `load_state` once all callbacks are there.
    """

    def __init__(self, resolved: Resolved, root: Path, *, debug: bool = False) -> None:
        self.resolved, self.config, self.root, self.debug = resolved, resolved.config, root, debug
        self.voice = Voice(resolved.config)
        self.title = " ".join([resolved.spec, *resolved.overrides])
        self.program, self.refusal = consent.alert_command(resolved)
        self.working_directory = Path.cwd()  # an environment may change it
        self.meta: dict[str, Any] = {}
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.make_folder: Callable[[Run], RunFolder]
        self.load_state: Callable[[Run], None] = lambda _: None
        self.folder: RunFolder | None = None
        self._run: Run | None = None
        self._begun = False  # before that a refusal leaves the folder as it was
        self._lock: RunLock | None = None
        self._ending = ExitStack()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with ExitStack() as last:
            last.callback(self._ending.close)
            if self._run is not None:
                if self.folder is not None and error is not None and self._begun:
                    last.callback(record_failure, self._run, self.folder, error)
                last.callback(self._run.close)

    def hold(self, folder: RunFolder) -> None:
        """Keep every other process away from the folder until the session ends."""
        folder.refuse_links()
        self._lock = RunLock(folder.path)
        self._lock.acquire()
        self._ending.callback(self._lock.release)
        self.folder = folder

    # ---- a Home ----------------------------------------------------------------------------------

    def open(self, run: Run) -> RunFolder:
        self._run = run
        folder = self.make_folder(run)
        if self.folder is None:
            self.hold(folder)
        self._ending.enter_context(stopping(run))
        return folder

    def confirm(self) -> None:
        assert self._lock is not None
        self._lock.confirm()

    def begin(self, run: Run) -> None:
        self.load_state(run)
        self._begun = True

    # ---- the work --------------------------------------------------------------------------------

    def train(self) -> Run:
        """Build the run, train it to its end and say how it went."""
        run = build(self.config, home=self)
        folder = self.folder
        assert folder is not None
        if self.refusal:
            self.voice.warn(self.refusal)
        for note in self.notes:
            self.voice.say(note)
            if not switches.session_logs():
                folder.log(note)
        for warning in self.warnings:
            self.voice.warn(warning)
        folder.set_status("running", compiled=bool(run.compiler.sizes), **run.progress.counters)
        Orchestrator(run).run()
        run.close()
        finish(run, folder)
        return run
