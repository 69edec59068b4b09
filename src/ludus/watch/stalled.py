"""Detects a run without progress. A hung environment writes no rows, so that a thread has to watch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ludus.metrics.sinks import Row, Sink
from ludus.watch.monitor import Monitor

KEY = "env_steps"
TIP = "an environment may hang, or an epoch is very long: environment.step_deadline, algorithm.rollout_steps"


class Stalled(Sink):
    """Raises an alert when nothing moved for `seconds`; the next row with new steps or updates ends it.

    `under_way` tells how far a rollout or an evaluation is: a long one is not a hung one.
    """

    def __init__(self, monitor: Monitor, seconds: float, under_way: Callable[[], object] = lambda: None) -> None:
        self.monitor, self.seconds, self._under_way, self._seen = monitor, seconds, under_way, under_way()
        self._position: tuple[float | str, ...] = (0, 0)
        self._beat = time.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stalled", daemon=True)
        self._thread.start()

    def write(self, row: Row) -> None:
        """Note the progress of a row."""
        position = (row.get("env_steps", 0), row.get("updates", 0))
        if position != self._position:
            self._position, self._beat = position, time.monotonic()
            self.monitor.good(KEY, "stalled")

    def close(self) -> None:
        """Stop the thread."""
        self._closing.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = min(self.seconds / 4, 10.0)
        reported = 0.0
        while not self._closing.wait(pause):
            before, self._seen = self._seen, self._under_way()
            if self._seen != before:
                self._beat = time.monotonic()
            beat = self._beat
            if time.monotonic() - beat >= self.seconds and beat != reported:
                reported = beat
                steps = float(self._position[0])
                problem = f"no progress for {self.seconds:g} s"
                self.monitor.bad(KEY, "stalled", problem, TIP, value=steps, env_steps=int(steps))
