"""Runs the user's program for every new alert, in a thread and without a shell."""

from __future__ import annotations

import logging
import queue
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from ludus.errors import ConfigError
from ludus.watch.monitor import Event

log = logging.getLogger(__name__)
WHERE = "logging.alert_command"
WAITING = 100
"""Length of the queue of alerts; further alerts are dropped."""


class AlertCommand:
    """A listener of the monitor: runs `[program, arguments..., "ludus <name>: <alert>"]`, one alert after the other."""

    def __init__(self, command: Sequence[str], name: str, *, timeout: float = 30.0, cwd: Path | None = None) -> None:
        if shutil.which(command[0]) is None:
            raise ConfigError(WHERE, f"'{command[0]}' is not a program on this machine", "give its full path")
        self.command, self.name, self.timeout, self.cwd = list(command), name, timeout, cwd
        self._failed = False
        self._queue: queue.Queue[str | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._work, name="alerts", daemon=True)
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Queue an alert that begins."""
        if event.begins and not self._queue.full():
            self._queue.put_nowait(f"ludus {self.name}: {event.text}")

    def close(self) -> None:
        """Wait for the queued alerts."""
        if not self._queue.full():
            self._queue.put_nowait(None)
        self._thread.join(self.timeout)

    def _work(self) -> None:
        while (text := self._queue.get()) is not None:
            self._run(text)

    def _run(self, text: str) -> None:
        nothing = subprocess.DEVNULL
        try:
            subprocess.run([*self.command, text], stdin=nothing, stdout=nothing, stderr=nothing, check=True,
                           timeout=self.timeout, start_new_session=True, cwd=self.cwd)  # fmt: skip
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            if not self._failed:
                log.warning("%s: %s failed: %s; training goes on", WHERE, self.command[0], error)
            self._failed = True
