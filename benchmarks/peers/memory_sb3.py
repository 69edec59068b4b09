"""sb3-contrib's RecurrentPPO on CartPole without velocities: one LSTM for policy and value, a head of 64 each."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from task import Clock, Task


def make() -> gym.Env:
    """Positions only."""
    env = gym.make("CartPole-v1")
    space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return gym.wrappers.TransformObservation(env, lambda obs: obs[[0, 2]], space)


class Watch(BaseCallback):
    """Marks the clock at every rollout."""

    clock = Clock()

    def _on_rollout_start(self) -> None:
        self.clock.mark(self.num_timesteps)

    def _on_step(self) -> bool:
        return True


def main() -> None:
    """Run the task and answer."""
    task = Task.from_argv()
    torch.set_num_threads(1)
    model = RecurrentPPO(
        "MlpLstmPolicy",
        make_vec_env(make, task.envs, seed=task.seed),
        n_steps=task.rollout_steps,
        batch_size=task.batch,
        n_epochs=task.epochs,
        learning_rate=task.lr,
        seed=task.seed,
        device="cpu",
        policy_kwargs={
            "lstm_hidden_size": 128,
            "shared_lstm": True,
            "enable_critic_lstm": False,
            "net_arch": {"pi": [64], "vf": [64]},
        },
    )
    watch = Watch()
    model.learn(task.total, callback=watch)
    watch.clock.report(task)


if __name__ == "__main__":
    main()
