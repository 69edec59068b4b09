"""What a checkpoint every 10 seconds costs; one JSON line for a small and one for a large network.

One training in windows of a few seconds, every other one with a checkpoint at its beginning. Within a window the speed
while the checkpoint is written is compared with the speed right after it, so that a machine which slows down and speeds
up by itself disturbs little; windows without a checkpoint show what is left of that. `cost_percent` is the share of ten
seconds of training that a checkpoint takes, `interval` its 95 % bootstrap interval, `waited_percent` the share in which
training stood still, `writer_cpu_percent` the processor time of the writing thread, which another core pays for.

python benchmarks/checkpoint_cost.py [--pairs 12] [--only CartPole|CNN]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

from ludus.config.schema import ExperimentConfig
from ludus.config.training import CheckpointPlan
from ludus.experiment import build
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.run import Run

EVERY, WRITING, REST = 10.0, 2.5, 2.5
"""Seconds between checkpoints, and of the two parts of a window; writing is done within the first."""


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
    lost: float
    """Seconds' worth of steps missing at its beginning, by the speed of its rest."""
    waited: float
    speed: float


class Windows(Checkpoints):
    """Cuts a training into windows, saves at the beginning of every other one, and sees what that costs."""

    def __init__(self, folder: Path, pairs: int) -> None:
        plan = CheckpointPlan(every_steps=None, every_minutes=None, at_evaluation="never")
        super().__init__(folder, plan, warn=print)
        self.pairs, self.saves = pairs, False
        self.done: list[Window] = []
        self.writer_seconds: list[float] = []

    def on_epoch_end(self, run: Run) -> None:
        """The first window only warms up."""
        now, steps = time.monotonic(), run.progress.env_steps
        if run.progress.cycles == 1:
            self.begin(now, steps)
        elif self.middle is None and now - self.began[0] >= WRITING:
            self.middle = now, steps
        elif self.middle is not None and now - self.middle[0] >= REST:
            (began, first), (middle, half) = self.began, self.middle
            speed = (steps - half) / (now - middle)
            self.done.append(Window(self.saves, middle - began - (half - first) / speed, self.waited, speed))
            if len(self.done) > 2 * self.pairs:
                run.stop("time is up")
                return
            self.saves = len(self.done) % 4 in (1, 2)  # saving, saving, plain, plain
            self.begin(now, steps)
            if self.saves:
                self.save(run)
                self.waited = time.monotonic() - now

    def begin(self, now: float, steps: int) -> None:
        """A new window."""
        self.began: tuple[float, int] = (now, steps)
        self.middle: tuple[float, int] | None = None
        self.waited = 0.0

    def _write(self, state: dict[str, Any], step: int, best: bool) -> Path:
        began = time.thread_time()
        path = super()._write(state, step, best)
        self.writer_seconds.append(time.thread_time() - began)
        return path


def measure(case: str, pairs: int) -> dict[str, Any]:
    """Train in windows and compare."""
    sections = {"training": {"total_timesteps": 10**9}, "runtime": {"compile": "never", "threads": 1}, **CASES[case]}
    run = build(ExperimentConfig.model_validate(sections), will_checkpoint=True)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        windows = Windows(Path(folder), pairs)
        run.callbacks.append(windows)
        run.run()
    run.close()
    saving, plain = ([w for w in windows.done[1:] if w.saves == kind] for kind in (True, False))
    cost, interval = difference([w.lost for w in saving], [w.lost for w in plain])
    return {
        "case": case,
        "parameters": sum(p.numel() for p in run.algorithm.policy.parameters()),
        "every_seconds": EVERY,
        "windows": [len(saving), len(plain)],
        "cost_percent": cost,
        "interval": interval,
        "waited_percent": share(statistics.median(w.waited for w in saving)),
        "writer_cpu_percent": share(statistics.median(windows.writer_seconds)),
        "steps_per_second": round(statistics.median(w.speed for w in windows.done)),
        "load": os.getloadavg()[0],
    }


def difference(saving: Sequence[float], plain: Sequence[float]) -> tuple[float, list[float]]:
    """How many percent of ten seconds more are lost with a checkpoint, and its 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    drawn = [np.mean(rng.choice(np.array(values), (4_000, len(values))), 1) for values in (saving, plain)]
    low, high = np.percentile(drawn[0] - drawn[1], [2.5, 97.5])
    return share(statistics.mean(saving) - statistics.mean(plain)), [share(float(low)), share(float(high))]


def share(seconds: float) -> float:
    """Percent of the time between two checkpoints."""
    return round(100 * seconds / EVERY, 2)


def main() -> None:
    """One case after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    options = parser.parse_args()
    torch.manual_seed(0)
    for case in (name for name in CASES if name.startswith(options.only)):
        print(json.dumps(measure(case, options.pairs)), flush=True)


if __name__ == "__main__":
    main()
