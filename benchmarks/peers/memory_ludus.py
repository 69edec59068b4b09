"""`ludus train` with an LSTM on CartPole without velocities; the numbers come from the run folder."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from task import Clock, Task


def experiment(task: Task) -> dict[str, Any]:
    """The task as a config file of its own."""
    head = {"hidden_dims": [64]}
    return {
        "environment": {
            "id": "CartPole-v1",
            "num_envs": task.envs,
            "wrappers": [{"id": "mask_observation", "indices": [1, 3]}],
        },
        "algorithm": {
            "name": "ppo",
            "rollout_steps": task.rollout_steps,
            "epochs": task.epochs,
            "batch_size": task.batch,
            "lr": task.lr,
        },
        "network": {"memory": {"type": "lstm", "hidden_dim": 128}, "actor": head, "critic": head},
        "training": {"total_timesteps": task.total},
        "runtime": {"threads": 1},
    }


def main() -> None:
    """Run the task and answer; argv: task, then overrides."""
    task = Task.from_argv()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "task.json").write_text(json.dumps(experiment(task)))
        command = [sys.executable, "-m", "ludus", "train", "task.json", "-q", f"experiment.seed={task.seed}"]
        subprocess.run([*command, *sys.argv[2:]], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        rows = Path(folder, "runs", "@last", "metrics.jsonl").read_text().splitlines()
    clock = Clock()
    clock.marks = [(row["env_steps"], row["seconds"]) for row in map(json.loads, rows)]
    clock.report(task)


if __name__ == "__main__":
    main()
