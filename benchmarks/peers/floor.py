"""The floor of PPO: the products and convolutions of acting and learning and the bare environments, and nothing else.

No loss, no activation, no optimizer, no shuffling, no statistics: whatever trains with these networks in float32 on
these environments does at least this work. It learns nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import gymnasium as gym
import numpy as np
import torch
from ludus_run import experiment
from products import Products, repeat
from task import Clock, Task
from torch import Tensor, nn

from ludus.config.schema import Environment
from ludus.envs.make import make_vector
from ludus.envs.vector import VectorEnv

HIDDEN = (64, 64)
Work = Callable[[], object]


def products(rows: int, widths: tuple[int, ...], *, backward: bool = True) -> list[Work]:
    """Forward and backward products of a network on a batch; the gradient of the first layer's input is not needed."""
    made: list[Work] = []
    for layer, (inner, outer) in enumerate(pairwise(widths)):
        x, w, y = torch.randn(rows, inner), torch.randn(inner, outer), torch.empty(rows, outer)
        dy, dw, dx = torch.randn(rows, outer), torch.empty(inner, outer), torch.empty(rows, inner)
        made.append(lambda x=x, w=w, y=y: torch.mm(x, w, out=y))
        if backward:
            made.append(lambda x=x, dy=dy, dw=dw: torch.mm(x.T, dy, out=dw))
            if layer:
                made.append(lambda dy=dy, w=w, dx=dx: torch.mm(dy, w.T, out=dx))
    return made


def nature(outputs: int) -> nn.Module:
    """The network of Mnih et al. 2015 for policy and value, without activations."""
    layers = (nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3136, 512, bias=False), nn.Linear(512, outputs + 1, bias=False))
    return nn.Sequential(*layers, flat).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def images(rows: int) -> Tensor:
    """A batch of stacked frames in the layout that convolutions are fastest in."""
    return torch.rand(rows, 4, 84, 84).to(memory_format=torch.channels_last)


def image_work(task: Task, outputs: int) -> tuple[list[Work], Callable[[np.ndarray], object]]:
    """(what an update computes, what acting computes) with images: the products of one pass, watched and repeated."""
    net, seen = nature(outputs), Products()
    with seen:
        net(images(task.batch)).sum().backward()
    acting = Products()
    with acting, torch.no_grad():
        net(images(task.envs))
    return [lambda: repeat(seen.calls)], lambda _: repeat(acting.calls)


def vector_work(task: Task, inputs: int, outputs: int) -> tuple[list[Work], Callable[[np.ndarray], object]]:
    """(what an update computes, what acting computes) with vectors; acting needs the policy alone."""
    update = [call for last in (outputs, 1) for call in products(task.batch, (inputs, *HIDDEN, last))]
    layers = [np.ones(pair, np.float32) for pair in pairwise((inputs, *HIDDEN, outputs))]

    def act(obs: np.ndarray) -> None:
        x = obs
        for weights in layers:
            x = x @ weights

    return update, act


def drawn(space: gym.Space[object], shape: tuple[int, int]) -> np.ndarray:
    """Actions for a rollout."""
    rng = np.random.default_rng(1)
    if isinstance(space, gym.spaces.Discrete):
        return rng.integers(int(space.n), size=shape)
    assert isinstance(space, gym.spaces.Box)
    return rng.uniform(space.low, space.high, (*shape, *space.shape)).astype(np.float32)


def train(
    task: Task,
    env: VectorEnv,
    obs: np.ndarray,
    chosen: np.ndarray,
    act: Callable[[np.ndarray], object],
    update: list[Work],
) -> None:
    """As many rollouts and updates as the task asks for, and the answer."""
    updates = task.epochs * (task.envs * task.rollout_steps // task.batch)
    clock, steps = Clock(), 0
    while steps < task.total:
        for t in range(task.rollout_steps):
            act(obs)
            obs = env.step(chosen[t]).obs
        for _ in range(updates):
            for call in update:
                call()
        steps += task.envs * task.rollout_steps
        clock.mark(steps)
    env.close()
    clock.report(task)


def main() -> None:
    """The products of the task's networks, and its environments."""
    task = Task.from_argv()
    torch.set_num_threads(task.threads)
    settings = experiment(task)["environment"]
    env = make_vector(Environment(**{k: v for k, v in settings.items() if "normalize" not in k}), num_envs=task.envs)
    obs = env.reset(list(range(task.envs)))
    space = env.info.action_space
    chosen = drawn(space, (task.rollout_steps, task.envs))
    outputs = int(space.n) if isinstance(space, gym.spaces.Discrete) else chosen.shape[-1]
    update, act = image_work(task, outputs) if task.atari else vector_work(task, obs.shape[-1], outputs)
    train(task, env, obs, chosen, act, update)


if __name__ == "__main__":
    main()
