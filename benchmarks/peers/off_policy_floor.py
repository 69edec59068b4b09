"""The floor of DQN: the products of acting, of the slow network and of the update, the bare environment, nothing else.

No draw from a buffer, no loss, no activation, no optimizer. It learns nothing.
"""

from __future__ import annotations

from itertools import pairwise

import gymnasium as gym
import numpy as np
import torch
from floor import products
from off_policy_task import Clock, OffPolicyTask


def main() -> None:
    """As many steps and updates as the task asks for."""
    task = OffPolicyTask.from_argv()
    torch.set_num_threads(task.threads)
    env = gym.make(task.env)
    assert isinstance(env.observation_space, gym.spaces.Box) and isinstance(env.action_space, gym.spaces.Discrete)
    actions = int(env.action_space.n)
    widths = (env.observation_space.shape[0], task.width, task.width, actions)
    update = [*products(task.batch, widths, backward=False), *products(task.batch, widths)]
    layers = [np.ones(pair, np.float32) for pair in pairwise(widths)]
    chosen = np.random.default_rng(1).integers(actions, size=task.total)
    clock, (obs, _) = Clock(task), env.reset(seed=task.seed)
    for step in range(task.total):
        x = obs
        for weights in layers:
            x = x @ weights
        obs, _, terminated, truncated, _ = env.step(chosen[step])
        if terminated or truncated:
            obs, _ = env.reset()
        if step >= task.learning_starts:
            for call in update:
                call()
        clock.mark(step + 1)
    clock.answer()


if __name__ == "__main__":
    main()
