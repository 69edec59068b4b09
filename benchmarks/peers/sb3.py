"""Stable-Baselines3's PPO, used as its documentation says."""

from __future__ import annotations

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from task import Clock, Task, answer


class Watch(BaseCallback):
    """Marks the clock at every rollout and evaluates at the task's cadence."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task, self.clock = task, Clock()
        self.due, self.mean = task.eval_every, float("-inf")
        self.eval_env = (
            make_vec_env("CartPole-v1", task.eval_episodes, seed=task.seed + 10_000) if task.eval_every else None
        )

    def _on_rollout_start(self) -> None:
        self.clock.mark(self.num_timesteps)
        if self.eval_env is not None and self.num_timesteps >= self.due:
            self.due += self.task.eval_every
            self.mean, _ = evaluate_policy(self.model, self.eval_env, n_eval_episodes=self.task.eval_episodes)

    def _on_step(self) -> bool:
        return self.mean < self.task.threshold


def main() -> None:
    """Run the task and answer."""
    task = Task.from_argv()
    torch.set_num_threads(1)
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", task.envs, seed=task.seed),
        n_steps=task.rollout_steps,
        batch_size=task.batch,
        n_epochs=task.epochs,
        gamma=task.gamma,
        gae_lambda=task.gae_lambda,
        learning_rate=(lambda left: left * task.lr) if task.anneal else task.lr,
        clip_range=(lambda left: left * task.clip) if task.anneal else task.clip,
        ent_coef=0.0,
        seed=task.seed,
        device="cpu",
    )
    watch = Watch(task)
    model.learn(task.total, callback=watch)
    if task.eval_every:
        if watch.mean < task.threshold:
            watch.mean, _ = evaluate_policy(model, watch.eval_env, n_eval_episodes=task.eval_episodes)
        answer(solved=bool(watch.mean >= task.threshold), eval_mean=float(watch.mean), env_steps=model.num_timesteps)
    else:
        answer(steps_per_second=watch.clock.steps_per_second())


main()
