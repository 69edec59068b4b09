"""What every contestant is given, and the one JSON line it answers with."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class Task:
    """PPO: separate 64x64 tanh networks for policy and value, or the Nature network for Atari games."""

    envs: int
    rollout_steps: int
    epochs: int
    batch: int
    total: int
    env: str = "CartPole-v1"
    lr: float = 3e-4
    clip: float = 0.2
    gamma: float = 0.99
    gae_lambda: float = 0.95
    entropy: float = 0.0
    normalize: bool = False
    """Running normalisation of observations and rewards."""
    threads: int = 1
    anneal: bool = False
    """Take lr and clip linearly to zero over `total` steps."""
    seed: int = 1
    eval_every: int = 0
    """Steps between evaluations; 0 measures speed only."""
    eval_episodes: int = 20
    threshold: float = 475.0
    curve: bool = False
    """Answer with the mean return of the newest 100 training episodes over time."""

    @property
    def atari(self) -> bool:
        """DeepMind preprocessing: no-ops, fire, skip 4 with the brighter of two frames, gray, 84x84, 4 stacked."""
        return self.env.startswith("ALE/")

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

ATARI = Task(
    env="ALE/Pong-v5",
    envs=8,
    rollout_steps=128,
    epochs=4,
    batch=256,
    total=1024 * 12,
    lr=2.5e-4,
    clip=0.1,
    entropy=0.01,
    threads=2,
)
"""The hyperparameters of Schulman et al. 2017 for Atari as in CleanRL, held constant; no sticky actions."""

MUJOCO = Task(env="HalfCheetah-v5", envs=8, rollout_steps=512, epochs=10, batch=256, total=4096 * 12, normalize=True)
"""Schulman et al. 2017 and CleanRL (64x64 tanh, 10 epochs, lr 3e-4) with eight environments and minibatches of 256."""

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
        self.curve: list[tuple[int, float]] = []

    def mark(self, env_steps: int, returns: Sequence[float] = ()) -> None:
        """Call at the same point of every rollout; `returns` are those of the newest 100 finished episodes."""
        self.marks.append((env_steps, time.perf_counter()))
        if len(returns):
            self.curve.append((env_steps, round(sum(returns) / len(returns), 2)))

    def report(self, task: Task) -> None:
        """Answer with the speed over all rollouts after the warm-up, and the curve if the task asks for it."""
        answer(steps_per_second=throughput(self.marks), **({"curve": self.curve} if task.curve else {}))


def throughput(marks: list[tuple[int, float]]) -> float:
    """Steps per second over (env_steps, seconds) marks, without the warm-up."""
    (steps, seconds), (last_steps, last_seconds) = marks[max(1, int(Clock.WARM_UP * len(marks)))], marks[-1]
    return (last_steps - steps) / (last_seconds - seconds)


def answer(**values: object) -> None:
    """Print the result."""
    print(json.dumps(values), flush=True)
