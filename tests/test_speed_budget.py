"""Training may not become slow unnoticed: processor time against a plain loop, measured side by side.

The plain loops do the same arithmetic with torch's own modules and Gymnasium's own environments. Ours take about half
of that; the budget is all of it, so that a busy machine does not decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from ludus.experiment import Run
from support import build, close, config, moment

ENVS, STEPS, EPOCHS, ROUNDS = 8, 32, 20, 3


def _run() -> Run:
    algorithm = {"name": "ppo", "rollout_steps": STEPS, "epochs": EPOCHS, "batch_size": 1.0}
    network = {head: {"hidden_dims": [64, 64]} for head in ("actor", "critic")}
    return build(config(algorithm, network=network, environment={"num_envs": ENVS}, runtime={"threads": 1}))


def _plain_network(out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out))


def _seconds(function: Callable[[], object]) -> float:
    """Processor time of a call: the best of a few, after one that warms up."""
    times = []
    for _ in range(1 + ROUNDS):
        begin = time.process_time()
        function()
        times.append(time.process_time() - begin)
    return min(times[1:])


def test_updates_cost_no_more_than_those_of_a_plain_loop() -> None:
    run = _run()
    now = moment(run.config.algorithm.config)

    def ours() -> None:
        run.hooks["collect"](now)
        begin = time.process_time()
        assert run.hooks["update_controller"](now).updates == EPOCHS
        taken.append(time.process_time() - begin)

    taken: list[float] = []
    for _ in range(1 + ROUNDS):
        ours()
    close(run)

    actor, critic = _plain_network(2), _plain_network(1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, 3e-4)
    obs, action = torch.randn(ENVS * STEPS, 4), torch.randint(2, (ENVS * STEPS, 1))
    advantage, target, old = torch.randn(3, ENVS * STEPS)

    def plain() -> None:
        for _ in range(EPOCHS):
            order = torch.randperm(len(obs))
            logits = actor(obs[order]).log_softmax(-1)
            ratio = (logits.gather(-1, action[order]).squeeze(-1) - old[order]).exp()
            scaled = advantage[order]
            scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-8)
            policy = -torch.min(ratio * scaled, ratio.clamp(0.8, 1.2) * scaled).mean()
            value = 0.5 * (critic(obs[order]).squeeze(-1) - target[order]).square().mean()
            entropy = -(logits.exp() * logits).sum(-1).mean()
            optimizer.zero_grad()
            (policy + value - 0.01 * entropy).backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()

    assert min(taken[1:]) < _seconds(plain)


def test_collecting_costs_no_more_than_a_plain_loop() -> None:
    run = _run()
    now = moment(run.config.algorithm.config)
    seconds = _seconds(lambda: run.hooks["collect"](now))
    close(run)

    envs = gym.make_vec("CartPole-v1", ENVS, vectorization_mode="sync")
    actor, critic = _plain_network(2), _plain_network(1)
    obs, _ = envs.reset(seed=0)

    @torch.no_grad()
    def plain() -> None:
        seen = obs
        for _ in range(STEPS):
            batch = torch.as_tensor(np.asarray(seen))
            critic(batch)
            action = torch.distributions.Categorical(logits=actor(batch)).sample().numpy()
            seen, *_ = envs.step(action)

    assert seconds < _seconds(plain)
    envs.close()
