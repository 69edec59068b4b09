"""A2C: one optimizer step along the gradient of a rollout, written out by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from ludus.errors import ConfigError
from support import build, close, config, moment

SETTINGS = {"name": "a2c", "rollout_steps": 12, "lr": 0.1, "entropy_coef": 0.3, "value_coef": 0.7}
SGD = {"optimizer": {"type": "sgd"}, "max_grad_norm": None}


def collected(memory: str = "none", env: str = "CartPole-v1", **algorithm: Any) -> Any:
    """A run with one rollout, and the moment it was collected at."""
    cfg = config({**SETTINGS, **algorithm}, env, network={"memory": memory}, environment={"max_episode_steps": 7})
    run, now = build(cfg), moment(cfg.algorithm.config)
    run.algorithm.collect(now)
    return run, now


@pytest.mark.parametrize("normalize", [False, True])
def test_one_update_by_hand(normalize: bool) -> None:
    run, now = collected(normalize_advantage=normalize, **SGD)
    a2c, (columns, state) = run.algorithm, run.algorithm.experience
    batch = {**columns, "state": state}
    policy = copy.deepcopy(a2c.policy)
    params, value, _ = policy(batch["obs"], (), batch["first"])
    pi, advantage = torch.distributions.Categorical(logits=params), batch["advantage"]
    if normalize:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    loss = -(pi.log_prob(batch["action"]) * advantage).mean()
    loss = loss + 0.7 * 0.5 * (value - batch["target"]).square().mean() - 0.3 * pi.entropy().mean()
    gradients = torch.autograd.grad(loss, list(policy.parameters()))
    assert a2c.update_controller(now).updates == 1
    for new, old, gradient in zip(a2c.policy.parameters(), policy.parameters(), gradients, strict=True):
        torch.testing.assert_close(new, old - 0.1 * gradient, atol=1e-6, rtol=1e-4)
    assert a2c.learner.last("loss/total") == pytest.approx(float(loss.detach()), rel=1e-4)
    close(run)


def test_each_rollout_is_learned_from_once() -> None:
    run, now = collected()
    assert [run.algorithm.update_controller(now).updates for _ in range(2)] == [1, 0]
    close(run)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_accumulating_changes_no_weight(memory: str) -> None:
    thetas = []
    for accumulate in (1, 3):
        run, now = collected(memory, accumulate=accumulate, memory_lr=0.02, **SGD)
        run.algorithm.update_controller(now)
        thetas.append(run.algorithm.learner.theta.clone())
        close(run)
    torch.testing.assert_close(*thetas, atol=1e-6, rtol=1e-4)


def test_more_parts_than_environments_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.accumulate: 4 environments cannot be cut into 5 parts"):
        collected(accumulate=5)


def test_short_rollouts_share_an_epoch() -> None:
    """A row of metrics for every five steps would be none to read."""
    run = build(config({**SETTINGS, "epoch_steps": 240}, training={"total_timesteps": 480}))
    run.run()
    close(run)
    assert run.progress.epochs == 2 and run.progress.updates == 10
