"""`ludus train` as a user starts it; the numbers come from the run folder."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from task import Clock, Task, answer

RETURN = "train/roll/ep_rew/mean"


def overrides(task: Task) -> list[str]:
    """The task in the config's own words; time to solve runs the shipped config, only watched at the same cadence."""
    if task.eval_every:
        return [
            f"training.evaluation.every_steps={task.eval_every}",
            "training.evaluation.every_epochs=0",
            f"training.evaluation.episodes={task.eval_episodes}",
            "training.evaluation.warmup_epochs=0",
            "training.evaluation.deterministic=true",
            f"training.stop.eval_reward={task.threshold}",
            "training.stop.confirm_episodes=0",
            f"training.total_timesteps={task.total}",
        ]
    return [
        f"environment.num_envs={task.envs}",
        f"algorithm.rollout_steps={task.rollout_steps}",
        f"algorithm.epochs={task.epochs}",
        f"algorithm.batch_size={task.batch}",
        f"algorithm.lr={task.lr}",
        f"algorithm.clip={task.clip}",
        f"algorithm.gamma={task.gamma}",
        f"algorithm.gae_lambda={task.gae_lambda}",
        "network.actor.hidden_dims=[64,64]",
        "network.critic.hidden_dims=[64,64]",
        "training.evaluation.every_steps=0",
        "training.evaluation.every_epochs=0",
        "training.stop.eval_reward=null",
        f"training.total_timesteps={task.total}",
    ]


def experiment(task: Task) -> dict[str, Any]:
    """The task as a config file of its own, so that no shipped one can help."""
    games = {
        "kwargs": {"frameskip": 1, "repeat_action_probability": 0.0},
        "wrappers": [
            "fire_reset",
            "noop_reset",
            "grayscale",
            "max_and_skip",
            "resize",
            "clip_reward",
            {"id": "frame_stack", "frames": 4},
        ],
    }
    normalized = {"normalize_obs": "rolling", "normalize_reward": True} if task.normalize else {}
    hidden = {} if task.atari else {"actor": {"hidden_dims": [64, 64]}, "critic": {"hidden_dims": [64, 64]}}
    return {
        "environment": {"id": task.env, "num_envs": task.envs, **(games if task.atari else {}), **normalized},
        "algorithm": {
            "name": "ppo",
            "rollout_steps": task.rollout_steps,
            "epochs": task.epochs,
            "batch_size": task.batch,
            "lr": task.lr,
            "clip": task.clip,
            "gamma": task.gamma,
            "gae_lambda": task.gae_lambda,
            "entropy_coef": task.entropy,
        },
        "network": {"encoder": "nature" if task.atari else "mlp", **hidden},
        "training": {"total_timesteps": task.total},
        "runtime": {"threads": task.threads},
    }


def main() -> None:
    """Run the task and answer; argv: task, then overrides of this contestant."""
    task = Task.from_argv()
    with tempfile.TemporaryDirectory() as folder:
        spec, settings = "CartPole-v1:ppo", overrides(task)
        if task.env != "CartPole-v1":
            spec, settings = "task.json", []
            Path(folder, spec).write_text(json.dumps(experiment(task)))
        command = [sys.executable, "-m", "ludus", "train", spec, "-q", f"experiment.seed={task.seed}"]
        subprocess.run([*command, *settings, *sys.argv[2:]], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        metrics = Path(folder, "runs", "@last", "metrics.jsonl").read_text()
        rows = [json.loads(line) for line in metrics.splitlines()]
    if task.eval_every:
        mean = [row["val/roll/ep_rew/mean"] for row in rows if "val/roll/ep_rew/mean" in row][-1]
        answer(solved=mean >= task.threshold, eval_mean=mean, env_steps=rows[-1]["env_steps"])
    else:
        clock = Clock()
        clock.marks = [(row["env_steps"], row["seconds"]) for row in rows]
        clock.curve = [(row["env_steps"], round(row[RETURN], 2)) for row in rows if RETURN in row]
        clock.report(task)


if __name__ == "__main__":
    main()
