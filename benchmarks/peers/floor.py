"""The floor of PPO: the matrix products of acting and learning and the bare environments, and nothing else.

No loss, no activation, no optimizer, no shuffling: whatever trains with these networks in float32 on these
environments does at least this work. It learns nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from task import Clock, Task

from ludus.config.schema import Environment
from ludus.envs.make import make_vector

HIDDEN = (64, 64)


def products(rows: int, widths: tuple[int, ...]) -> list[Callable[[], object]]:
    """Forward and backward products of a network on a batch; the gradient of the first layer's input is not needed."""
    made = []
    for layer, (inner, outer) in enumerate(pairwise(widths)):
        x, w, y = torch.randn(rows, inner), torch.randn(inner, outer), torch.empty(rows, outer)
        dy, dw, dx = torch.randn(rows, outer), torch.empty(inner, outer), torch.empty(rows, inner)
        made.append(lambda x=x, w=w, y=y: torch.mm(x, w, out=y))
        made.append(lambda x=x, dy=dy, dw=dw: torch.mm(x.T, dy, out=dw))
        if layer:
            made.append(lambda dy=dy, w=w, dx=dx: torch.mm(dy, w.T, out=dx))
    return made


def main() -> None:
    """As many rollouts and updates as the task asks for."""
    task = Task.from_argv()
    torch.set_num_threads(task.threads)
    cfg = Environment(id=task.env, num_envs=task.envs)
    env = make_vector(cfg, num_envs=task.envs)
    obs = env.reset(list(range(task.envs)))
    inputs, actions = obs.shape[-1], int(env.info.action_space.n)
    outputs = {"actor": actions, "critic": 1}
    update = [call for last in outputs.values() for call in products(task.batch, (inputs, *HIDDEN, last))]
    widths = (inputs, *HIDDEN, actions)
    layers = [np.ones(pair, np.float32) for pair in pairwise(widths)]
    chosen = np.random.default_rng(1).integers(actions, size=(task.rollout_steps, task.envs))
    updates = task.epochs * (task.envs * task.rollout_steps // task.batch)
    clock, steps = Clock(), 0
    while steps < task.total:
        for t in range(task.rollout_steps):
            x = obs
            for weights in layers:
                x = x @ weights
            obs = env.step(chosen[t]).obs
        for _ in range(updates):
            for call in update:
                call()
        steps += task.envs * task.rollout_steps
        clock.mark(steps)
    env.close()
    clock.report(task)


if __name__ == "__main__":
    main()
