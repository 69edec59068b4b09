"""What checkpointing every 10 seconds costs: training with and without it, side by side; one JSON line each.

`cost_percent` is the median over pairs of runs of what is lost in steps per second, which other programs on the machine
disturb; `cpu_percent` the same in steps per second of processor time, the writing thread included; `waited_percent` the
share of the time in which training stood still for a checkpoint.

python benchmarks/checkpoint_cost.py [--seconds 40] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

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
            self.began, self.began_cpu, self.steps = time.monotonic(), time.process_time(), run.clock.env_steps
        elif time.monotonic() - self.began >= self.seconds:
            steps = run.clock.env_steps - self.steps
            self.speed = steps / (time.monotonic() - self.began)
            self.per_cpu = steps / (time.process_time() - self.began_cpu)
            run.stop("time is up")


class Saving(Checkpoints):
    """Checkpoints that know how long they kept training waiting."""

    waited = 0.0

    def on_cycle_end(self, run) -> None:
        """Where periodic checkpoints are taken."""
        began = time.monotonic()
        super().on_cycle_end(run)
        if run.clock.cycles > 1:
            self.waited += time.monotonic() - began


class Measured(NamedTuple):
    """One training."""

    speed: float
    per_cpu: float
    waited: float
    parameters: int


def measure(case: str, seconds: float, save: bool) -> Measured:
    """Train for so long, with or without checkpoints."""
    sections = {"training": {"total_timesteps": 10**9}, "runtime": {"compile": "never", "threads": 1}, **CASES[case]}
    config = ExperimentConfig.model_validate(sections)
    run, timer, saving = build(config, savable=save), Timer(seconds), None
    with tempfile.TemporaryDirectory(dir=".") as folder:
        if save:
            plan = CheckpointPlan(every_minutes=EVERY / 60)
            collector = run.stateful["collector"]
            saving = Saving(Path(folder), plan, collector, Streams(1), warn=print)
            run.callbacks.append(saving)
        run.callbacks.append(timer)
        run.run()
    run.stateful["collector"].close()
    parameters = sum(p.numel() for p in run.algorithm.policy.parameters())
    return Measured(timer.speed, timer.per_cpu, saving.waited / seconds if saving else 0.0, parameters)


def main() -> None:
    """Interleaved, medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    for case in CASES:
        pairs = []
        for i in range(options.repeats):
            order = (True, False) if i % 2 else (False, True)
            found = {save: measure(case, options.seconds, save) for save in order}
            pairs.append((found[False], found[True]))
        line = {
            "case": case,
            "parameters": pairs[0][0].parameters,
            "every_seconds": EVERY,
            "cost_percent": median(100 * (1 - saving.speed / plain.speed) for plain, saving in pairs),
            "cpu_percent": median(100 * (1 - saving.per_cpu / plain.per_cpu) for plain, saving in pairs),
            "waited_percent": median(100 * saving.waited for _, saving in pairs),
            "steps_per_second": [[round(plain.speed), round(saving.speed)] for plain, saving in pairs],
            "load": os.getloadavg()[0],
        }
        print(json.dumps(line), flush=True)


def median(values: Iterable[float]) -> float:
    """Rounded to what can be meant."""
    return round(statistics.median(values), 2)


if __name__ == "__main__":
    main()
