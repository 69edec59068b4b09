"""What every contestant is given, and the one JSON line it answers with."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class Task:
    """PPO on CartPole-v1 with separate 64x64 tanh networks for policy and value."""

    envs: int
    rollout_steps: int
    epochs: int
    batch: int
    total: int
    lr: float = 3e-4
    clip: float = 0.2
    gamma: float = 0.99
    gae_lambda: float = 0.95
    anneal: bool = False
    """Take lr and clip linearly to zero over `total` steps."""
    seed: int = 1
    eval_every: int = 0
    """Steps between evaluations; 0 measures speed only."""
    eval_episodes: int = 20
    threshold: float = 475.0

    def with_seed(self, seed: int) -> Task:
        """The same task with another seed."""
        return replace(self, seed=seed)

    def to_json(self) -> str:
        """As an argument for a contestant's script."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argv(cls) -> Task:
        """The task this script was started with."""
        return cls(**json.loads(sys.argv[1]))


SPEED = {
    "A": Task(envs=8, rollout_steps=32, epochs=20, batch=256, total=256 * 120),
    "B": Task(envs=16, rollout_steps=128, epochs=4, batch=512, total=2048 * 50),
}
"""The two settings of the speed comparison."""

SOLVE = Task(
    envs=8,
    rollout_steps=32,
    epochs=20,
    batch=256,
    total=100_000,
    lr=1e-3,
    gamma=0.98,
    gae_lambda=0.8,
    anneal=True,
    eval_every=4096,
)
"""The RL Zoo's hyperparameters for PPO on CartPole-v1."""


class Clock:
    """Steps per second between the end of the warm-up and the last mark: start-up and first-call costs are left out."""

    WARM_UP = 0.1
    """Share of the marks that is not counted."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, float]] = []

    def mark(self, env_steps: int) -> None:
        """Call at the same point of every rollout."""
        self.marks.append((env_steps, time.perf_counter()))

    def steps_per_second(self) -> float:
        """Over all rollouts after the warm-up."""
        return throughput(self.marks)


def throughput(marks: list[tuple[int, float]]) -> float:
    """Steps per second over (env_steps, seconds) marks, without the warm-up."""
    (steps, seconds), (last_steps, last_seconds) = marks[max(1, int(Clock.WARM_UP * len(marks)))], marks[-1]
    return (last_steps - steps) / (last_seconds - seconds)


def answer(**values: object) -> None:
    """Print the result."""
    print(json.dumps(values), flush=True)
