"""What both world-model contestants are given, and how their speed is read off; runs in either's interpreter."""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, replace
from itertools import pairwise


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

    @property
    def measured(self) -> str:
        """What the milliseconds of an answer belong to."""
        return "step" if self.mode == "act" else "update"

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


class UpdateClock:
    """Median milliseconds between marks, of wall and of processor time."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def mark(self) -> None:
        """Call after each update."""
        self.wall.append(1e3 * time.perf_counter())
        self.cpu.append(1e3 * time.process_time())

    def answer(self, parameters: dict[str, int], **facts: str) -> None:
        """Print the result; `parameters` counts those that are trained."""
        ms, cpu_ms = (statistics.median(differences(marks[WARM_UP - 1 :])) for marks in (self.wall, self.cpu))
        print(json.dumps({"update_ms": ms, "update_cpu_ms": cpu_ms, "parameters": parameters, **facts}))


def differences(marks: list[float]) -> list[float]:
    """From each mark to the next."""
    return [end - start for start, end in pairwise(marks)]


class ActingClock:
    """Milliseconds per environment step while acting, the first tenth of the steps left out."""

    def __init__(self, task: WorldModelTask) -> None:
        self.begin = task.steps // 10
        self.marks: list[tuple[int, float, float]] = []

    def mark(self, env_steps: int) -> None:
        """Call with the steps so far, of all environments; the first that counts and the newest are kept."""
        if env_steps >= self.begin:
            self.marks = [*self.marks[:1], (env_steps, time.perf_counter(), time.process_time())]

    def answer(self, **facts: str) -> None:
        """Print the result."""
        (first, wall, cpu), (last, end, cpu_end) = self.marks
        ms, cpu_ms = (1e3 * seconds / (last - first) for seconds in (end - wall, cpu_end - cpu))
        print(json.dumps({"step_ms": ms, "step_cpu_ms": cpu_ms, "steps_per_second": 1e3 / ms, **facts}))
