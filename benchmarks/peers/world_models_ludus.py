"""Ludus's Dreamer 3, updating from random replayed steps or acting; argv: task, then overrides of this contestant."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from world_model_task import WARM_UP, ActingClock, UpdateClock, WorldModelTask

import ludus
from ludus.config.compose import load
from ludus.experiment import build
from ludus.orchestration.callbacks import Callback
from ludus.run import Run

STORED = 2_048
END_EVERY = 50
"""Mean length of the random episodes."""


class Noise(gym.Env[np.ndarray, np.int64]):
    """Random images, rewards and ends, whatever is done: the steps that the peer is given as arrays."""

    def __init__(self, side: int) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (3, side, side), np.uint8)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._image(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        end = bool(self.np_random.random() < 1 / END_EVERY)
        return self._image(), float(self.np_random.standard_normal()), end, False, {}

    def _image(self) -> np.ndarray:
        return self.np_random.integers(0, 256, self.observation_space.shape, dtype=np.uint8)


class Watch(Callback):
    """Marks the clock at every cycle of the phase that is measured."""

    def __init__(self, task: WorldModelTask) -> None:
        self.acting, self.updating = ActingClock(task), UpdateClock()

    def on_report(self, run: Run, hook: str, report: Any) -> None:
        if run.phase.name == "act":
            self.acting.mark(run.progress.env_steps)
        elif hook == "update":
            self.updating.mark()


def experiment(task: WorldModelTask) -> dict[str, Any]:
    """The task as a config file of its own, so that no shipped one can help."""
    image = {"id": "Noise-v0", "kwargs": {"side": task.side}}
    environment = image if task.observation == "image" else {"id": "CartPole-v1"}
    act = {"name": "act", "hooks": ["collect"], "duration_steps": task.steps}
    fill = {"name": "fill", "hooks": ["collect"], "duration_steps": STORED}
    learn = {
        "name": "learn",
        "type": "offline",
        "hooks": ["update"],
        "duration_cycles": WARM_UP + task.updates,
    }
    return {
        "environment": {**environment, "num_envs": task.envs},
        "algorithm": {
            "name": "dreamer",
            "variant": "v3",
            "size": task.size,
            "batch_size": task.batch,
            "sequence_length": task.length,
            "horizon": task.horizon,
            "learning_starts": 1,
        },
        "training": {"total_timesteps": 10**6, "phases": [act] if task.mode == "act" else [fill, learn]},
        "experiment": {"seed": task.seed},
        "runtime": {"threads": task.threads},
    }


def parameters(run: Run) -> dict[str, int]:
    """Those that are trained, by network."""
    return {
        name: sum(weight.numel() for weight in learner.networks[name].parameters())
        for learner in run.learners.values()
        for group in learner.groups.values()
        for name in group.networks
    }


def main() -> None:
    """Run the task and answer."""
    task = WorldModelTask.from_argv()
    gym.register("Noise-v0", Noise)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "task.json")
        file.write_text(json.dumps(experiment(task)))
        watch = Watch(task)
        run = build(load(str(file), sys.argv[2:]).config, callbacks=[watch])
        run.run()
    facts = {"version": ludus.__version__, "torch": torch.__version__}
    if task.mode == "act":
        watch.acting.answer(**facts)
    else:
        watch.updating.answer(parameters(run), **facts)
    run.close()


if __name__ == "__main__":
    main()
