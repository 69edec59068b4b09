"""The process around a command: output that cannot be written, threads and processes that do not end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from ludus.terminal import mute, warn

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    Waited = set[threading.Thread | BaseProcess]

PATIENCE = 3.0
"""Seconds that threads of an environment may run after the command has ended."""


def open_standard_streams() -> None:
    """Open closed standard streams: otherwise the next file would get their number and receive stray prints."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "r" if descriptor == 0 else "w", closefd=False))


def fail(line: str, code: int, shown: BaseException | None = None) -> int:
    """Print `error: ...` on stderr if that is possible, after the tracebacks of `shown`; return the exit code."""
    from ludus.secrets import hide

    with contextlib.suppress(OSError):
        if shown is not None:
            traceback.print_exception(shown)
            print(getattr(shown, "detail", ""), end="", file=sys.stderr)
        print(f"error: {hide(line)}", file=sys.stderr, flush=True)
    return code


class OutputLost(OSError):
    """Standard output cannot be written."""


class Output:
    """Standard output whose errors are OutputLost; a reader that closed the pipe is not an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text."""
        self._own(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flush what was written."""
        self._own(self._stream.flush)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def _own(self, function: Callable[..., object], *args: str) -> None:
        try:
            function(*args)
        except BrokenPipeError:
            mute(self._stream)
        except OSError as error:
            raise OutputLost(error.errno, error.strerror) from error
        except ValueError:  # an environment closed it
            if not self._stream.closed:
                raise


def waited_for() -> Waited:
    """Threads, and processes of `multiprocessing`, that Python waits for when it ends."""
    known = sys.modules.get("multiprocessing.process")
    children = known.active_children() if known is not None else []
    return {part for part in (*threading.enumerate(), *children) if not part.daemon}


def leave_behind(left: Waited, code: int) -> None:
    """End the process even if threads and processes that an environment started do not end."""
    if left:
        threading.Thread(target=_leave, args=(left, code), daemon=True).start()


def _leave(left: Waited, code: int) -> None:
    while threading.main_thread().is_alive():  # until Python begins to wait for the others
        time.sleep(0.05)
    time.sleep(PATIENCE)
    stuck = [part for part in left if part.is_alive()]
    if not stuck:
        return
    warn(f"{len(stuck)} threads or processes of an environment do not end, such as '{stuck[0].name}': left behind")
    for part in stuck:
        if hasattr(part, "kill"):  # a fork of this process may ignore milder signals as we do
            part.kill()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)
