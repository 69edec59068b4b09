"""What surrounds a run while it trains in a folder: the lock, the user it talks to, the record of a failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from ludus import preflight
from ludus.archive import consent, run_plugins
from ludus.archive.lock import RunLock
from ludus.archive.store import RunFolder
from ludus.config.compose import Resolved
from ludus.console.live import Console
from ludus.console.ticking import ticking
from ludus.plugins import Plugin
from ludus.run import Run
from ludus.session.finish import finish, record_failure
from ludus.session.furnish import show
from ludus.session.signals import stopping
from ludus.terminal import quiet, warn


class Session:
    """A run, its folder and its user; as a context it holds the lock and records why a run failed."""

    folder: RunFolder

    def __init__(self, resolved: Resolved, *, debug: bool, plugins: Sequence[Plugin] = ()) -> None:
        self.config, self.title, self.debug = resolved.config, resolved.title, debug
        self.program, refusal = consent.alert_command(resolved)
        self.working_directory = Path.cwd()  # an environment may change it
        self.plugins = plugins
        self.meta: dict[str, Any] = {}
        """What every checkpoint repeats of meta.json."""
        self.notes = [*resolved.notes]
        self.warnings = [refusal] if refusal else []
        self.silent = quiet() or not self.config.logging.console
        self.console: Console | None = None
        self.run: Run | None = None
        self.lock: RunLock | None = None
        self._begun = False  # until then a refusal leaves the folder as it was

    def __enter__(self) -> Session:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        with ExitStack() as last:
            if self.lock is not None:
                last.callback(self.lock.release)
            if self.run is not None:
                if error is not None and self._begun:
                    last.callback(record_failure, self.run, self.folder, error)
                last.callback(self.run.close)

    def admit(self, run: Run, root: Path) -> None:
        """Take a run in, if it fits into memory and its checkpoints onto the disk of `root`."""
        self.run = run
        self.memory, *self.cautions = preflight.check(run, root)

    def hold(self, folder: RunFolder) -> None:
        """Keep every other process away from the folder."""
        folder.refuse_links()
        lock = RunLock(folder.path)
        lock.acquire()
        self.lock, self.folder = lock, folder

    def record_plugins(self) -> list[dict[str, str]]:
        """Copy the plugins into the folder, remember that the user named them for it; what meta.json says of them."""
        troubles = [run_plugins.allow(self.folder.path, plugin) for plugin in self.plugins]
        self.warnings += filter(None, troubles)
        return run_plugins.record(self.folder, self.plugins)

    @contextmanager
    def training(self, run: Run) -> Iterator[None]:
        """A context for the loop: files and console are open, signals are heard; then the final numbers are written."""
        self._begun = True
        console = show(self, run)
        self.folder.set_status("running", compiled=bool(run.compiler.sizes), **run.progress.counters)
        with stopping(run, console.announce), ticking(console.tick):
            yield
            told = finish(run, self.folder)
            run.close()
            console.summary(told)

    def say(self, message: str) -> None:
        """A note to the user: above the table if there is a console, else on stderr."""
        if self.console is not None:
            self.console.note(message)
        else:
            warn(message)

    def warn(self, message: str) -> None:
        """A note that reaches the user even if the console is silent."""
        self.say(message)
        if self.console is not None and self.silent:
            warn(message)
