"""Measures speed, remaining time and memory of a run for every row, within microseconds."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ludus.progress import Budget
from ludus.types import zeros
from ludus.watch import ram
from ludus.watch.ram import MB

if TYPE_CHECKING:
    import gymnasium as gym

    from ludus.algorithms import Algorithm

WINDOW = 10.0
"""Seconds over which the current speed is measured."""
MEMORY_EVERY, GROWTH_EVERY, LATENCY_EVERY = 0.25, 5.0, 30.0
"""Seconds between two measurements."""
SAMPLES = 32
"""Stored readings of memory use, spread over the whole run."""
SETTLED = 24
"""Readings before growth is extrapolated."""
NOISE = 4 * MB
"""Smaller growth is ignored."""


class Vitals:
    """`measure` gives the metrics of a row; `act` is one decision of the policy, timed every half minute.

    `epoch`, `position` and `seconds` are where the run stands when this begins; `position` counts like the budget.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        epoch: int = 0,
        position: int = 0,
        seconds: float = 0.0,
        act: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.budget, self._act, self._clock = budget, act, clock
        self._rate_name = "time/fps" if budget.unit == "env_steps" else "time/updates_per_second"
        self._start = (seconds, position)
        self._window = deque([self._start])
        self._last = (seconds, epoch)
        self._processor = time.process_time()
        self._memory = _Memory(budget.total)
        self._latency_due = 0.0

    def measure(self, *, epoch: int, position: int, seconds: float) -> dict[str, float]:
        """Names are those of the `train` stage; `seconds` and `position` only ever grow."""
        self._window.append((seconds, position))
        while len(self._window) > 2 and self._window[1][0] <= seconds - WINDOW:
            self._window.popleft()
        speed = _rate(self._window[0], self._window[-1])
        before, last_epoch = self._last
        self._last = (seconds, epoch)
        processor, self._processor = self._processor, time.process_time()
        found = {
            self._rate_name: speed,
            f"{self._rate_name}_total": _rate(self._start, (seconds, position)),
            "time/epoch_seconds": (seconds - before) / max(epoch - last_epoch, 1),
            "time/cpu_seconds": self._processor - processor,
            **self._memory.measure(position, seconds),
        }
        if speed > 0:
            found["time/eta_seconds"] = max(self.budget.total - position, 0) / speed
        if self._act is not None and seconds >= self._latency_due:
            self._latency_due = seconds + LATENCY_EVERY
            times = []
            for _ in range(3):  # the first decision may include a copy of the weights
                begin = self._clock()
                self._act()
                times.append(self._clock() - begin)
            found["time/act_ms"] = 1e3 * sorted(times)[1]
        return found


class _Memory:
    """Current and peak memory, and the memory expected at the end of the run."""

    def __init__(self, length: int) -> None:
        self.length, self.total = length, ram.total()
        self._due = self._growth_due = 0.0
        self._pause = GROWTH_EVERY
        self._samples: list[tuple[int, float]] = []

    def measure(self, position: int, seconds: float) -> dict[str, float]:
        """Metrics of memory; empty if the last measurement is recent."""
        if seconds < self._due:
            return {}
        self._due = seconds + MEMORY_EVERY
        used = ram.used()
        if seconds >= self._growth_due:
            self._samples.append((position, used))
            if len(self._samples) == 2 * SAMPLES:  # drop every second reading and make longer pauses
                self._samples, self._pause = self._samples[1::2], 2 * self._pause
            self._growth_due = seconds + self._pause
        found = {
            "system/rss_mb": used / MB,
            "system/peak_rss_mb": max(ram.peak(), used) / MB,
            "system/memory_share": used / self.total,
            **self._ahead(position, used),
        }
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            found["system/gpu_mb"] = torch.cuda.memory_allocated() / MB
            found["system/peak_gpu_mb"] = torch.cuda.max_memory_allocated() / MB
        return found

    def _ahead(self, position: int, used: float) -> dict[str, float]:
        """Share of the memory at the end if it keeps growing as in the second half of the run."""
        (begin, before), (end, after) = (self._samples[i] for i in (len(self._samples) // 2, -1))
        if len(self._samples) < SETTLED or end <= begin:
            return {}
        growth = after - before
        slope = growth / (end - begin) if growth > NOISE else 0.0
        return {"system/memory_ahead": (used + slope * max(self.length - position, 0)) / self.total}


def _rate(begin: tuple[float, int], end: tuple[float, int]) -> float:
    return (end[1] - begin[1]) / (end[0] - begin[0]) if end[0] > begin[0] else 0.0


def one_decision(algorithm: Algorithm, space: gym.Space) -> Callable[[], object]:
    """A function that takes one greedy action for one environment, to be timed; it changes nothing in the algorithm."""
    obs = zeros(space, 1)
    state, first = algorithm.initial_state(1), np.ones(1, bool)
    return lambda: algorithm.act(obs, state, first, deterministic=True)
