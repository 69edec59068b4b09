"""Stable-Baselines3's SAC and DQN, used as its documentation says."""

from __future__ import annotations

import gymnasium as gym
import torch
from off_policy_task import Clock, OffPolicyTask
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.callbacks import BaseCallback


class Watch(BaseCallback):
    """Marks the clock at every step."""

    def __init__(self, task: OffPolicyTask) -> None:
        super().__init__()
        self.clock = Clock(task)

    def _on_step(self) -> bool:
        self.clock.mark(self.num_timesteps)
        return True


def main() -> None:
    """Run the task and answer."""
    task = OffPolicyTask.from_argv()
    torch.set_num_threads(task.threads)
    shared = {
        "learning_rate": task.lr,
        "buffer_size": task.buffer,
        "learning_starts": task.learning_starts,
        "batch_size": task.batch,
        "gamma": task.gamma,
        "train_freq": 1,
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": [task.width, task.width]},
        "seed": task.seed,
        "device": "cpu",
    }
    env = gym.make(task.env)
    sac = task.algorithm == "sac"
    model = SAC("MlpPolicy", env, **shared) if sac else DQN("MlpPolicy", env, target_update_interval=500, **shared)
    watch = Watch(task)
    model.learn(task.total, callback=watch)
    watch.clock.answer()


main()
