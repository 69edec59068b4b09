"""Calls into environments: failures become one line for the user, and what is no step has a deadline.

In this process that is being made, reset, tried out and closed; workers are ended by their parent. A thread watches.
Python code that is late is interrupted in the main thread by a signal; code inside a library, which does not react to
signals, is stopped by ending the process.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType

import gymnasium as gym
import numpy as np

from ludus.errors import EnvironmentFailed, LudusError, MissingExtra
from ludus.types import Array

LEAST = 120.0
"""Least seconds of any deadline, however short that of a step is: imports and ROMs take long, once."""
NOTICE = 15.0
"""Seconds after which a notice says what is being waited for."""
GRACE = 5.0
"""Seconds that an interruption may take to arrive."""
TICK = 0.25


class Late(BaseException):
    """The interruption; not an Exception, so that an environment's `except Exception` does not catch it."""


class Within:
    """`with Within(seconds, where, verb)`: EnvironmentFailed if the block takes longer; infinite seconds: no deadline.

    It can be entered several times.
    """

    __slots__ = ("_seconds", "_thread", "_waited", "_where", "fired", "verb")

    def __init__(self, seconds: float, where: str | Callable[[], str], verb: str) -> None:
        self._seconds, self._where, self.verb = max(seconds, LEAST), where, verb
        self._waited, self.fired, self._thread = 0.0, False, 0
        if seconds < math.inf:
            _watch.prepare()

    def __enter__(self) -> Within:
        if self._seconds < math.inf:
            self._waited, self.fired, self._thread = 0.0, False, threading.get_ident()
            _watch.open.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._seconds < math.inf:
            _watch.open.remove(self)
            for outer in _watch.open:
                outer.beat()
        if self.fired and isinstance(error, Late):
            raise self.failure() from None

    def beat(self) -> None:
        """A sign of life: count from here."""
        self._waited, self.fired = 0.0, False

    def failure(self) -> EnvironmentFailed:
        """The error for the user."""
        problem = f"{self.verb} did not come to an end within {self._seconds:g} s"
        return EnvironmentFailed(self._name(), problem, "raise environment.step_deadline if it is only slow")

    def tick(self) -> None:
        """Called by the watching thread."""
        before = self._waited
        self._waited += TICK  # by count: a process that was stopped for a while did not wait
        if before < NOTICE <= self._waited < self._seconds:
            _say(f"ludus: {self._name()}: {self.verb} takes long; it has {self._seconds:g} s")
        here = self._thread == threading.main_thread().ident and signal.getsignal(signal.SIGALRM) is _interrupt
        if self._waited >= self._seconds + (GRACE if here else 0):
            _say(f"error: {self.failure().line()}")
            os._exit(EnvironmentFailed.exit_code)
        if self._waited >= self._seconds and not self.fired:
            self.fired = True
            signal.pthread_kill(self._thread, signal.SIGALRM)

    def _name(self) -> str:
        return self._where if isinstance(self._where, str) else self._where()


class _Watch:
    """All open deadlines, and the thread that watches them."""

    def __init__(self) -> None:
        self.open: list[Within] = []
        self._process = 0

    def prepare(self) -> None:
        """Start the thread, and install the signal handler if nobody else has one."""
        if self._process != os.getpid():  # a fork has no threads but one
            self._process, self.open = os.getpid(), []
            threading.Thread(target=self._run, name="deadlines", daemon=True).start()
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
            signal.signal(signal.SIGALRM, _interrupt)

    def _run(self) -> None:
        while True:
            time.sleep(TICK)
            for entry in tuple(self.open):
                entry.tick()


_watch = _Watch()


def _interrupt(_: int, frame: FrameType | None) -> None:
    if any(entry.fired for entry in _watch.open) and not _debugged(frame):
        raise Late
    for entry in _watch.open:
        entry.beat()


def _debugged(frame: FrameType | None) -> bool:
    """Whether a debugger is attached: then there is no deadline."""
    while frame is not None and frame.f_globals.get("__name__") not in ("bdb", "debugpy"):
        frame = frame.f_back
    return frame is not None or sys.gettrace() is not None


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def raised(where: str, verb: str, error: BaseException, *, logged: bool = True) -> EnvironmentFailed:
    """`<where>: <verb> raised ValueError: ...`, also for sys.exit; Ctrl-C of the user is raised again.

    `logged`: there is a run.log. An error without a message is told with its place.

    A KeyboardInterrupt comes from the user only if the signal still raises one: not during training, not in a worker.
    """
    pass_on(error)
    text = str(error).partition("\n")[0][:200]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    problem = f"{verb} raised {type(error).__name__}" + (f": {text}" if text else f" without a message{place}")
    remedy = "its traceback is in run.log, or add --debug" if logged else "add --debug for its traceback"
    failure = EnvironmentFailed(where, problem, remedy)
    failure.detail = "".join(traceback.format_exception(error))
    return failure


def pass_on(error: BaseException) -> None:
    """Raise again what is not the environment's fault, or is an error of ours already."""
    if isinstance(error, LudusError | Late):
        raise error
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        raise error


def close(env: gym.Env, where: str, deadline: float) -> None:
    """Close one environment; EnvironmentFailed if that raises or hangs."""
    try:
        with Within(deadline, where, "close"):
            env.close()
    except BaseException as error:  # whatever an environment raises is reported with its traceback
        raise raised(where, "close", error) from error


def frame(env: gym.Env, id: str) -> Array:
    """The rendered image of an environment, uint8 [H, W, 3], in a new array."""
    try:
        return np.array(env.render())
    except gym.error.DependencyNotInstalled as error:
        raise MissingExtra(f"rendering {id}", "video") from error
