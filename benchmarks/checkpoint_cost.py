"""What a checkpoint every 10 seconds costs: one training in windows of 10 seconds, every other one with a checkpoint.

Windows come in pairs, plain and saving in turn first, so that a machine that slows down or speeds up slows both. One
JSON line each: `cost_percent` is the median over the pairs of what is lost in steps per second, `interval` its 95 %
bootstrap interval, `cpu_percent` the same in steps per second of processor time, the writing thread included, and
`waited_percent` the share of the saving windows in which training stood still.

python benchmarks/checkpoint_cost.py [--pairs 12] [--only CartPole|CNN]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

from ludus.config.schema import CheckpointPlan, ExperimentConfig
from ludus.data.collector import Collector
from ludus.data.streams import Streams
from ludus.experiment import build
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.orchestration.orchestrator import Orchestrator
from ludus.session.parts import collector_of

EVERY = 10.0


class Pixels(gym.Env):
    """Noise to look at: the network is what is measured."""

    observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self._frame(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        return self._frame(), float(action == 0), self.t >= 50, False, {}

    def _frame(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (4, 84, 84), np.uint8)


gym.register("BenchPixels-v0", Pixels)
CASES = {
    "CartPole, 9 thousand parameters": {
        "environment": {"id": "CartPole-v1"},
        "algorithm": {"name": "ppo", "rollout_steps": 32, "epochs": 20, "batch_size": 256},
    },
    "CNN, 10 million parameters": {
        "environment": {"id": "BenchPixels-v0", "num_envs": 4},
        "algorithm": {"name": "ppo", "rollout_steps": 16, "epochs": 1, "batch_size": 0.5},
        "network": {"encoder": {"type": "cnn", "features": 3_200}},
    },
}


class Window(NamedTuple):
    """So many seconds of training."""

    saves: bool
    speed: float
    per_cpu: float
    waited: float


class Windows(Checkpoints):
    """Cuts a training into windows, saves at the beginning of every other one, and knows how long that took."""

    def __init__(self, folder: Path, collector: Collector, pairs: int) -> None:
        plan = CheckpointPlan(every_steps=None, every_minutes=None, at_evaluation="never")
        super().__init__(folder, plan, collector, Streams(1), warn=print)
        self.pairs, self.done = pairs, list[Window]()
        self.saves = False

    def on_cycle_end(self, run: Orchestrator) -> None:
        """The first seconds only warm up."""
        now = time.monotonic()
        if run.clock.cycles == 1:
            self.begin(run)
        elif now - self.began >= EVERY:
            steps = run.clock.env_steps - self.steps
            cpu = time.process_time() - self.began_cpu
            self.done.append(Window(self.saves, steps / (now - self.began), steps / cpu, self.waited))
            if len(self.done) > 2 * self.pairs:
                run.stop("time is up")
                return
            self.saves = len(self.done) % 4 in (1, 2)  # plain, saving, saving, plain
            self.begin(run)
            if self.saves:
                self.save(run)
                self.waited = time.monotonic() - self.began

    def begin(self, run: Orchestrator) -> None:
        """A new window."""
        self.began, self.began_cpu, self.steps = time.monotonic(), time.process_time(), run.clock.env_steps
        self.waited = 0.0


def measure(case: str, pairs: int) -> dict[str, Any]:
    """Train in windows and compare."""
    sections = {"training": {"total_timesteps": 10**9}, "runtime": {"compile": "never", "threads": 1}, **CASES[case]}
    run = build(ExperimentConfig.model_validate(sections), savable=True)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        collector = collector_of(run)
        windows = Windows(Path(folder), collector, pairs)
        run.callbacks.append(windows)
        run.run()
    collector.close()
    done = windows.done[1:]
    both = [sorted(done[i : i + 2], key=lambda window: window.saves) for i in range(0, len(done), 2)]
    costs = [100 * (1 - saving.speed / plain.speed) for plain, saving in both]
    low, high = interval(costs)
    return {
        "case": case,
        "parameters": sum(p.numel() for p in run.algorithm.policy.parameters()),
        "every_seconds": EVERY,
        "pairs": len(both),
        "cost_percent": median(costs),
        "interval": [low, high],
        "cpu_percent": median(100 * (1 - saving.per_cpu / plain.per_cpu) for plain, saving in both),
        "waited_percent": median(100 * saving.waited / EVERY for _, saving in both),
        "steps_per_second": median(plain.speed for plain, _ in both),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """One case after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    options = parser.parse_args()
    torch.manual_seed(0)
    for case in (name for name in CASES if name.startswith(options.only)):
        print(json.dumps(measure(case, options.pairs)), flush=True)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    drawn = np.random.default_rng(0).choice(np.array(values), (2_000, len(values)))
    low, high = np.percentile(np.median(drawn, 1), [2.5, 97.5])
    return round(float(low), 2), round(float(high), 2)


def median(values: Iterable[float]) -> float:
    """Rounded to what can be meant."""
    return round(statistics.median(values), 2)


if __name__ == "__main__":
    main()
