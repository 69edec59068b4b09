"""The process around a command: streams that cannot be written, threads and processes that do not end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from ludus.errors import ConfigError, LudusError
from ludus.terminal import mute, warn

PATIENCE = 3.0
"""Seconds that threads of an environment may take to end after everything else has."""


def open_standard_streams() -> None:
    """Without 0, 1 or 2 the next file of a run would get that number, and every stray print would go into it."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "r" if descriptor == 0 else "w", closefd=False))


def fail(line: str, code: int) -> int:
    """`error: ...` on stderr, if anybody can still read it."""
    from ludus.secrets import hide

    with contextlib.suppress(OSError):
        print(f"error: {hide(line)}", file=sys.stderr, flush=True)
    return code


def print_traceback(error: BaseException) -> None:
    """For --debug; with that of a worker if there is one."""
    with contextlib.suppress(OSError):
        traceback.print_exception(error)
        print(getattr(error, "detail", ""), end="", file=sys.stderr)


class OutputLost(OSError):
    """Standard output cannot be written."""


class Output:
    """Standard output whose errors can be told from others; a reader that went away had enough, which is none."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As the stream's."""
        self._own(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """As the stream's."""
        self._own(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _own(self, function: Callable[..., Any], *args: Any) -> None:
        try:
            function(*args)
        except BrokenPipeError:
            mute(self._stream)
        except OSError as error:
            raise OutputLost(error.errno, error.strerror) from error
        except ValueError:  # an environment closed it
            if not self._stream.closed:
                raise


def flush() -> None:
    """What was printed reaches whoever reads it; an environment may have put something else in the place of stdout."""
    if sys.stdout is not None:
        sys.stdout.flush()


@contextlib.contextmanager
def own_output() -> Iterator[None]:
    """While inside, an error of standard output is an OutputLost."""
    before = sys.stdout
    sys.stdout = cast("TextIO", Output(before))
    try:
        yield
    finally:
        sys.stdout = before


def lost_directory() -> LudusError | None:
    """A working directory that is gone, or None if it is there."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return ConfigError("working directory", "it was removed", "change to one that exists")
    return None


def waited_for() -> set[Any]:
    """Threads, and processes of `multiprocessing`, that Python waits for at its end."""
    known = sys.modules.get("multiprocessing.process")
    children = known.active_children() if known is not None else []
    return {part for part in (*threading.enumerate(), *children) if not part.daemon}


def leave_behind(left: set[Any], code: int) -> None:
    """A command that is done ends, even if threads and processes that an environment started do not."""
    if left:
        threading.Thread(target=_leave, args=(left, code), daemon=True).start()


def _leave(left: set[Any], code: int) -> None:
    while threading.main_thread().is_alive():  # until Python begins to wait for the others
        time.sleep(0.05)
    time.sleep(PATIENCE)
    stuck = [part for part in left if part.is_alive()]
    if not stuck:
        return
    warn(f"{len(stuck)} threads or processes of an environment do not end, such as '{stuck[0].name}': left behind")
    for part in stuck:
        if hasattr(part, "kill"):  # forked from here, it may have our handlers of milder signals
            part.kill()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)
