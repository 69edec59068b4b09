"""A thread that keeps the console alive while the run computes and writes no row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PERIOD = 0.25


@contextmanager
def ticking(tick: Callable[[], None]) -> Iterator[None]:
    """A context in which `tick` is called four times a second."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_PERIOD):
            tick()

    thread = threading.Thread(target=beat, name="console", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
