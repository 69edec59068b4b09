"""Signals only set a flag; the loop saves at the end of the cycle and ends with exit code 75."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ludus.run import Run

EARLY = 75
"""Exit code of a run that was stopped early but saved."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Sent by users, closed terminals and batch systems; all of them mean: save and end."""


@contextmanager
def stopping(run: Run, announce: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """A context in which the first signal asks the run to save and end; the third ends the process at once.

    `announce` is told so at once: the end of the cycle may be a minute away.

    SIGXCPU does not count, because the kernel repeats it every second; SIGHUP stays ignored under `nohup`. Outside the
    main thread Python allows no handlers, so signals keep the meaning that the program gave them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen, told = 0, False

    def handler(number: int, _: FrameType | None) -> None:
        nonlocal seen, told
        seen += number != signal.SIGXCPU
        if seen >= 3:
            os._exit(128 + number)
        run.interrupt(f"{signal.Signals(number).name}: saved, go on with ludus resume")
        if not told:
            told = True
            more = "; press Ctrl-C twice more to end at once, without saving" if number == signal.SIGINT else ""
            announce(f"{signal.Signals(number).name}: stopping after this update{more} ...")

    heard = [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
