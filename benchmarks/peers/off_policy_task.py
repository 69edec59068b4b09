"""What every off-policy contestant is given, and how its speed is read off."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class OffPolicyTask:
    """One environment, one update per step from `learning_starts` on, relu networks of two equal layers."""

    algorithm: str
    env: str
    width: int
    batch: int
    total: int
    lr: float
    gamma: float = 0.99
    learning_starts: int = 500
    buffer: int = 100_000
    seed: int = 1
    threads: int = 1

    def with_seed(self, seed: int) -> OffPolicyTask:
        """The same task with another seed."""
        return replace(self, seed=seed)

    def to_json(self) -> str:
        """As an argument for a contestant's script."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argv(cls) -> OffPolicyTask:
        """The task this script was started with."""
        return cls(**json.loads(sys.argv[1]))


TASKS = {
    "sac": OffPolicyTask("sac", "HalfCheetah-v5", width=256, batch=256, total=2_500, lr=3e-4),
    "dqn": OffPolicyTask("dqn", "CartPole-v1", width=256, batch=64, total=6_000, lr=1e-3),
}


class Clock:
    """Steps per second of wall and of processor time, from the first steps after `learning_starts` to the end."""

    WARM_UP = 250
    """Steps with updates that are not counted: compiled packages are loaded, caches filled."""

    def __init__(self, task: OffPolicyTask) -> None:
        self.begin = task.learning_starts + self.WARM_UP
        self.marks: list[tuple[int, float, float]] = []

    def mark(self, env_steps: int) -> None:
        """Call after a step; only the first that counts and the newest are kept."""
        if env_steps >= self.begin:
            self.marks = [*self.marks[:1], (env_steps, time.perf_counter(), time.process_time())]

    def answer(self) -> None:
        """Print the result."""
        (first, wall, cpu), (last, end, cpu_end) = self.marks
        steps = last - first
        print(json.dumps({"steps_per_second": steps / (end - wall), "per_cpu_second": steps / (cpu_end - cpu)}))
