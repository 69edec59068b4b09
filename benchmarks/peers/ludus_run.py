"""`ludus train CartPole-v1:ppo` as a user starts it; the numbers come from the run folder."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from task import Task, answer, throughput


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


def main() -> None:
    """Run the task and answer; argv: task, then overrides of this contestant."""
    task = Task.from_argv()
    command = [sys.executable, "-m", "ludus", "train", "CartPole-v1:ppo", "-q", f"experiment.seed={task.seed}"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*command, *overrides(task), *sys.argv[2:]], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        metrics = Path(folder, "runs", "@last", "metrics.jsonl").read_text()
        rows = [json.loads(line) for line in metrics.splitlines()]
    if task.eval_every:
        mean = [row["val/roll/ep_rew/mean"] for row in rows if "val/roll/ep_rew/mean" in row][-1]
        answer(solved=mean >= task.threshold, eval_mean=mean, env_steps=rows[-1]["env_steps"])
    else:
        answer(steps_per_second=throughput([(row["env_steps"], row["seconds"]) for row in rows]))


main()
