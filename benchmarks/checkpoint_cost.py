"""What checkpointing every 10 seconds costs: training with and without it, side by side; one JSON line each.

python benchmarks/checkpoint_cost.py [--seconds 40] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch

from ludus.config.schema import CheckpointPlan, ExperimentConfig
from ludus.data.streams import Streams
from ludus.experiment import build
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.callbacks.checkpoints import Checkpoints

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


class Timer(Callback):
    """Stops after so many seconds and counts what was done."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began = seconds, 0.0

    def on_cycle_end(self, run) -> None:
        """The first cycle only warms up."""
        if run.clock.cycles == 1:
            self.began, self.steps = time.monotonic(), run.clock.env_steps
        elif time.monotonic() - self.began >= self.seconds:
            self.speed = (run.clock.env_steps - self.steps) / (time.monotonic() - self.began)
            run.stop("time is up")


def speed(case: str, seconds: float, save: bool) -> tuple[float, int]:
    """Steps per second of one training, and the number of parameters."""
    sections = {"training": {"total_timesteps": 10**9}, "runtime": {"compile": "never", "threads": 1}, **CASES[case]}
    config = ExperimentConfig.model_validate(sections)
    run, timer = build(config, savable=save), Timer(seconds)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        if save:
            plan = CheckpointPlan(every_minutes=EVERY / 60)
            collector = run.stateful["collector"]
            run.callbacks.append(Checkpoints(Path(folder), plan, collector, Streams(1), warn=print))
        run.callbacks.append(timer)
        run.run()
    run.stateful["collector"].close()
    return timer.speed, sum(p.numel() for p in run.algorithm.policy.parameters())


def main() -> None:
    """Interleaved, medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    for case in CASES:
        found: dict[bool, list[float]] = {True: [], False: []}
        for i in range(options.repeats):
            for save in (True, False) if i % 2 else (False, True):
                rate, size = speed(case, options.seconds, save)
                found[save].append(rate)
        plain, saving = statistics.median(found[False]), statistics.median(found[True])
        cost = 100 * (1 - saving / plain)
        line = {"case": case, "parameters": size, "every_seconds": EVERY, "cost_percent": round(cost, 2)}
        print(json.dumps({**line, "steps_per_second": [round(plain), round(saving)]}), flush=True)


if __name__ == "__main__":
    main()
