"""Processes of this machine, forked from one that has imported everything already.

A run of a few thousand steps takes most of its time to import torch. `multiprocessing` keeps such a server: it is
single-threaded and has computed nothing, so that a fork of it equals a new process. When the coordinator dies the
server ends, and when the server ends the system tells every run to save.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.sweeps.engines import KILLED, Entry, Job, Task

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess, SpawnProcess

METHOD = "forkserver" if sys.platform == "linux" else "spawn"
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""A run sets the threads of torch itself; nothing else may use more than its core."""
QUIET = "LUDUS_QUIET"
_PR_SET_PDEATHSIG = 1


def warm_up() -> None:
    """Let the server begin to import while this process still reads configs."""
    if METHOD == "forkserver":
        multiprocessing.get_context(METHOD).set_forkserver_preload(["ludus.sweeps.warm"])
        with _pinned():
            ensure_running()


class LocalEngine:
    """Runs of this machine."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.context = multiprocessing.get_context(METHOD)
        warm_up()

    def start(self, job: Job) -> LocalTask:
        """Fork a process for the job."""
        arguments = (self.entry, list(job.arguments), str(job.log))
        process = self.context.Process(target=carry_out, args=arguments, name=job.name)  # type: ignore[attr-defined]
        with _pinned():
            process.start()
        return LocalTask(process)

    def wait(self, tasks: Sequence[Task], seconds: float) -> None:
        """Return when a process has ended."""
        sentinels = [task.process.sentinel for task in tasks if isinstance(task, LocalTask)]
        wait(sentinels, seconds) if sentinels else time.sleep(seconds)

    def close(self) -> None:
        """Nothing: the server ends with this process."""


class LocalTask:
    """One process."""

    def __init__(self, process: ForkServerProcess | SpawnProcess) -> None:
        self.process = process

    def code(self) -> int | None:
        """Exit code, or minus the signal."""
        code = self.process.exitcode
        return KILLED if code is None and not self.process.is_alive() else code

    def stop(self, folder: Path | None) -> None:
        """SIGTERM: it saves at the end of its epoch."""
        with contextlib.suppress(OSError, AttributeError):
            os.kill(self.process.pid or 0, signal.SIGTERM) if self.process.pid else None


def carry_out(entry: Entry, arguments: list[str], log: str) -> None:
    """The command line in a fresh process; its output goes to a file."""
    os.setsid()  # Ctrl-C is for the coordinator
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.environ[QUIET] = "1"
    sys.argv = ["ludus", *arguments]
    entry(arguments)


@contextlib.contextmanager
def _pinned() -> Iterator[None]:
    """One thread for what the server imports, unless the user has said otherwise."""
    mine = {name: value for name, value in THREADS.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)
