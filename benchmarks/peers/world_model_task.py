"""What both world-model contestants are given, and how their speed is read off; runs in either's interpreter."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class WorldModelTask:
    """Dreamer of one size: full updates from random replayed steps, or acting in CartPole-v1 without any."""

    mode: str = "update"
    """update | act"""
    size: str = "1m"
    observation: str = "vector"
    """vector: 4 numbers; image: 3 x side x side bytes. Two actions."""
    side: int = 64
    batch: int = 16
    length: int = 64
    horizon: int = 15
    updates: int = 10
    """Updates that count."""
    envs: int = 1
    steps: int = 4_000
    """Environment steps of acting, over all environments."""
    seed: int = 1
    threads: int = 1

    def with_seed(self, seed: int) -> WorldModelTask:
        """The same task with another seed."""
        return replace(self, seed=seed)

    def to_json(self) -> str:
        """As an argument for a contestant's script."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argv(cls) -> WorldModelTask:
        """The task this script was started with."""
        return cls(**json.loads(sys.argv[1]))


WARM_UP = 2
"""Updates before those that count: packages are loaded, memory is allocated."""


def time_updates(update: Callable[[], object], task: WorldModelTask, parameters: dict[str, int], **facts: str) -> None:
    """Answer with the median update in milliseconds of wall and of processor time."""
    wall, cpu = [], []
    for repeat in range(WARM_UP + task.updates):
        start, cpu_start = time.perf_counter(), time.process_time()
        update()
        if repeat >= WARM_UP:
            wall.append(1e3 * (time.perf_counter() - start))
            cpu.append(1e3 * (time.process_time() - cpu_start))
    answer = {"update_ms": statistics.median(wall), "update_cpu_ms": statistics.median(cpu)}
    print(json.dumps({**answer, "parameters": parameters, **facts}))


class ActingClock:
    """Milliseconds per environment step while acting, the first tenth of the steps left out."""

    def __init__(self, task: WorldModelTask) -> None:
        self.begin, self.envs, self.steps = task.steps // 10, task.envs, 0
        self.marks: list[tuple[int, float, float]] = []

    def mark(self) -> None:
        """Call once per step of all environments."""
        if self.steps >= self.begin:
            self.marks = [*self.marks[:1], (self.steps, time.perf_counter(), time.process_time())]
        self.steps += self.envs

    def answer(self, **facts: str) -> None:
        """Print the result."""
        (first, wall, cpu), (last, end, cpu_end) = self.marks
        step_ms, step_cpu_ms = (1e3 * seconds / (last - first) for seconds in (end - wall, cpu_end - cpu))
        print(json.dumps({"step_ms": step_ms, "step_cpu_ms": step_cpu_ms, **facts}))
