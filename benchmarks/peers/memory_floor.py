"""The floor of PPO with an LSTM: the products of its gates and heads and the bare environments, and nothing else.

What enters the gates of all steps is one product, as are the gradients of all weights; what returns from the step
before is one product per step, forward and backward. No activation, reset, loss or optimizer. It learns nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from floor import Work, products, train
from task import Task

from ludus.config.schema import Environment
from ludus.envs.make import make_vector

SEEN, UNITS, HEAD = 2, 128, 64


def lstm(steps: int, rows: int) -> list[Work]:
    """Products of the forward and backward pass over `rows` sequences of `steps`."""
    x, before, dgates = (torch.randn(steps * rows, width) for width in (SEEN, UNITS, 4 * UNITS))
    w_in, w = torch.randn(SEEN, 4 * UNITS), torch.randn(UNITS, 4 * UNITS)
    h, back, one = torch.randn(rows, UNITS), torch.empty(rows, UNITS), torch.empty(rows, 4 * UNITS)
    gates, dw, dw_in = torch.empty_like(dgates), torch.empty_like(w), torch.empty_like(w_in)
    return [
        lambda: torch.mm(x, w_in, out=gates),
        lambda: [torch.mm(h, w, out=one) for _ in range(steps)],
        lambda: [torch.mm(one, w.T, out=back) for _ in range(steps)],
        lambda: torch.mm(before.T, dgates, out=dw),
        lambda: torch.mm(x.T, dgates, out=dw_in),
    ]


def main() -> None:
    """The products of an LSTM and its heads, and the environments."""
    task = Task.from_argv()
    torch.set_num_threads(1)
    env = make_vector(Environment(id="CartPole-v1", num_envs=task.envs), num_envs=task.envs)
    obs = env.reset(list(range(task.envs)))
    # the first layer of a head has an input whose gradient is needed: it goes on into the LSTM
    heads = [call for last in (2, 1) for call in products(task.batch, (UNITS, UNITS, HEAD, last))[2:]]
    update = [*lstm(task.rollout_steps, task.batch // task.rollout_steps), *heads]
    shapes = ((SEEN, 4 * UNITS), (UNITS, 4 * UNITS), (UNITS, HEAD), (HEAD, 2))
    weights = [np.ones(shape, np.float32) for shape in shapes]
    h = np.ones((task.envs, UNITS), np.float32)
    chosen = np.random.default_rng(1).integers(2, size=(task.rollout_steps, task.envs))

    def act(obs: np.ndarray) -> None:
        for x, w in zip((obs[:, :SEEN], h, h, h[:, :HEAD]), weights, strict=True):
            x @ w

    train(task, env, obs, chosen, act, update)


if __name__ == "__main__":
    main()
