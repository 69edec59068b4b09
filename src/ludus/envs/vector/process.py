"""The parent's handle on one worker process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import cloudpickle

from ludus.envs.deadline import LEAST
from ludus.envs.spaces import EnvInfo
from ludus.envs.vector import worker as protocol
from ludus.errors import EnvironmentFailed, LudusError
from ludus.interpreter import running

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
GRACE = 5.0
"""Seconds a worker may take to close its environments before it is killed."""
GONE = (BrokenPipeError, ConnectionResetError)


class Lost(Exception):
    """A worker died (`code`, negative for a signal), or did not answer in time (None)."""

    def __init__(self, worker: Worker, code: int | None, seconds: float = 0.0) -> None:
        super().__init__(worker, code)
        self.worker, self.code, self.seconds = worker, code, seconds

    def error(self, where: str) -> EnvironmentFailed:
        """One line for the user."""
        if self.code is None:
            problem = f"no answer within {self.seconds:g} s, its worker was stopped"
            return EnvironmentFailed(where, problem, "raise environment.step_deadline if it is only slow")
        death = f"ended with exit code {self.code}"
        if self.code < 0:
            name = signal.Signals(-self.code).name
            death = f"was killed by {name}" + (", likely out of memory" if name == "SIGKILL" else "")
        return EnvironmentFailed(where, f"its worker {death}", "environment.on_worker_death=restart replaces it")


class Worker:
    """A process, its socket, and the environments `first` to `end` it owns."""

    def __init__(self, job: protocol.WorkerJob, memory_fd: int, deadline: float) -> None:
        self.first, self.end = job.first, job.first + job.size
        self.deadline, self.patience = deadline, max(LEAST, deadline)
        """Seconds for most commands, and for those that may make environments."""
        self.replacement = False
        """Replaces a lost worker and has not done a step yet."""
        self._link, theirs = socket.socketpair()
        with theirs:
            self._process = _start(theirs.fileno(), memory_fd)
        self._send(_pickled(job))

    def ready(self) -> EnvInfo:
        """Wait until the environments are made; errors of the worker are raised here."""
        message = self.message(self.patience)
        if isinstance(message, LudusError):
            raise message
        assert isinstance(message, EnvInfo)
        return message

    def tell(self, command: bytes, message: Any = None) -> None:
        """Send a command and its message; if the worker is gone, `answer` raises."""
        try:
            self._link.send(command)
        except GONE:
            return
        if message is not None:
            self._send(message)

    def answer(self, until: float | None = None, seconds: float | None = None) -> bytes:
        """DONE or FINISHED; raises Lost if there is no answer, and the error of an environment."""
        seconds = seconds or self.deadline
        try:
            self._link.settimeout(max((until - time.monotonic()) if until else seconds, 1e-3))
            reply = self._link.recv(1)
        except TimeoutError:
            raise Lost(self, None, seconds) from None
        except ConnectionResetError:
            reply = b""
        if reply == b"":
            raise Lost(self, self._exit_code())
        if reply == protocol.FAILED:
            raise self.message()
        return reply

    def message(self, seconds: float | None = None) -> Any:
        """The message after an answer."""
        seconds = seconds or self.deadline
        try:
            self._link.settimeout(seconds)
            return protocol.receive(self._link)
        except TimeoutError:
            raise Lost(self, None, seconds) from None
        except (EOFError, ConnectionResetError):
            raise Lost(self, self._exit_code()) from None

    def join(self) -> None:
        """Wait for its end; kill it if it does not end in time."""
        self._exit_code()
        self._link.close()

    def kill(self) -> None:
        """Kill it now."""
        self._process.kill()
        self._process.wait()

    def _exit_code(self) -> int:
        """Exit code of a worker that is ending; negative: the signal that ended it."""
        try:
            return self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def _send(self, message: Any) -> None:
        self._link.settimeout(self.deadline)
        try:
            protocol.send(self._link, message)
        except (*GONE, TimeoutError):
            return


def _start(link_fd: int, memory_fd: int) -> subprocess.Popen[bytes]:
    """Start a new interpreter with this one's import path; signals stay blocked until the worker ignores them."""
    entry = f"from ludus.envs.vector.worker import main; main({link_fd}, {memory_fd})"
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, protocol.IGNORED)
    try:
        return subprocess.Popen(
            running(entry), stdin=subprocess.DEVNULL, pass_fds=(link_fd, memory_fd), env={**ONE_THREAD, **os.environ}
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _pickled(job: protocol.WorkerJob) -> bytes:
    """Pickle a job; code that a new interpreter cannot import (a plugin file) is sent by value."""
    names = {part.__module__ for part in job.recipe.code()}
    tops = {name: name.partition(".")[0] for name in names}
    modules = [sys.modules[n] for n in names if not any(finder.find_spec(tops[n], None) for finder in sys.meta_path)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        payload: bytes = cloudpickle.dumps(job)
        return payload
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
