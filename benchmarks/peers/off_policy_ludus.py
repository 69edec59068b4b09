"""Ludus's SAC and DQN, built from the shipped configs; argv: task, then overrides of this contestant."""

from __future__ import annotations

import sys
from typing import Any

from off_policy_task import Clock, OffPolicyTask

from ludus.config.compose import load
from ludus.experiment import build
from ludus.orchestration.callbacks import Callback


class Watch(Callback):
    """Marks the clock at every cycle."""

    def __init__(self, task: OffPolicyTask) -> None:
        self.clock = Clock(task)

    def on_report(self, run: Any, hook: str, report: Any) -> None:
        if hook == "update_controller":
            self.clock.mark(run.progress.env_steps)


def overrides(task: OffPolicyTask) -> list[str]:
    """The task in the config's own words."""
    layers = f"[{task.width},{task.width}]"
    parts = ["critic"] if task.algorithm == "dqn" else ["actor", "critic"]
    return [
        "environment.num_envs=1",
        f"algorithm.lr={task.lr}",
        f"algorithm.gamma={task.gamma}",
        f"algorithm.batch_size={task.batch}",
        f"algorithm.learning_starts={task.learning_starts}",
        "algorithm.train_freq=1",
        "algorithm.update_ratio=1.0",
        f"buffers.replay.size={task.buffer}",
        *(f"network.{part}.hidden_dims={layers}" for part in parts),
        *(f"network.{part}.activation=relu" for part in parts),
        "training.evaluation.every_steps=0",
        "training.evaluation.every_epochs=0",
        "training.stop.eval_reward=null",
        f"training.total_timesteps={task.total}",
        f"experiment.seed={task.seed}",
        f"runtime.threads={task.threads}",
        *(["algorithm.double=false"] if task.algorithm == "dqn" else []),  # the peers' DQN is the plain one
    ]


def main() -> None:
    """Run the task and answer."""
    task = OffPolicyTask.from_argv()
    resolved = load(f"{task.env}:{task.algorithm}", [*overrides(task), *sys.argv[2:]])
    watch = Watch(task)
    build(resolved.config, callbacks=[watch]).run()
    watch.clock.answer()


if __name__ == "__main__":
    main()
