"""Stable-Baselines3's PPO, used as its documentation says; argv: task, then `subproc` for a process per environment."""

from __future__ import annotations

import sys
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack, VecNormalize
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
        self.clock.mark(self.num_timesteps, [episode["r"] for episode in self.model.ep_info_buffer or ()])
        if self.eval_env is not None and self.num_timesteps >= self.due:
            self.due += self.task.eval_every
            self.mean, _ = evaluate_policy(self.model, self.eval_env, n_eval_episodes=self.task.eval_episodes)

    def _on_step(self) -> bool:
        return self.mean < self.task.threshold


def make_envs(task: Task) -> VecEnv:
    """As the documentation makes them for each kind of task."""
    kind: Any = SubprocVecEnv if "subproc" in sys.argv else DummyVecEnv
    if task.atari:
        import ale_py  # noqa: F401 - registers the games

        bare = {"frameskip": 1, "repeat_action_probability": 0.0}  # its AtariWrapper skips frames itself
        how = {"start_method": "fork"} if kind is SubprocVecEnv else None  # other children do not know the games
        envs: VecEnv = make_atari_env(
            task.env, task.envs, seed=task.seed, env_kwargs=bare, vec_env_cls=kind, vec_env_kwargs=how
        )
        return VecFrameStack(envs, 4)
    envs = make_vec_env(task.env, task.envs, seed=task.seed, vec_env_cls=kind)
    return VecNormalize(envs, gamma=task.gamma) if task.normalize else envs


def main() -> None:
    """Run the task and answer."""
    task = Task.from_argv()
    torch.set_num_threads(task.threads)
    model = PPO(
        "CnnPolicy" if task.atari else "MlpPolicy",
        make_envs(task),
        n_steps=task.rollout_steps,
        batch_size=task.batch,
        n_epochs=task.epochs,
        gamma=task.gamma,
        gae_lambda=task.gae_lambda,
        learning_rate=(lambda left: left * task.lr) if task.anneal else task.lr,
        clip_range=(lambda left: left * task.clip) if task.anneal else task.clip,
        ent_coef=task.entropy,
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
        watch.clock.report(task)


if __name__ == "__main__":
    main()
