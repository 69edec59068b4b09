"""TD3's three tricks: smallest critic, smoothed target policy, delayed actor and targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ludus.errors import ConfigError
from ludus.experiment import build
from ludus.learning.several_steps import finished
from support import close, config, moment
from toy_learners import Recorded, captured

SMALL = {"actor": {"hidden_dims": [16], "activation": "relu"}, "critic": {"hidden_dims": [16], "activation": "relu"}}
QUICK = {"name": "td3", "batch_size": 16, "learning_starts": 32, "epoch_steps": 64}


def started(memory: str = "none", cycles: int = 40, **algorithm):
    cfg = config(
        {**QUICK, **algorithm},
        env="Pendulum-v1",
        environment={"num_envs": 2},
        network={**SMALL, "memory": memory},
        buffers={"replay": {"type": "uniform", "size": 2_000}},
    )
    one = build(cfg)
    now = moment(cfg.algorithm.config)
    for _ in range(cycles):
        one.algorithm.collect(now)
        one.algorithm.update_controller(now)
    return one, now


def test_losses_equal_the_paper() -> None:
    one, now = started(target_noise=2.0, noise_clip=0.3)
    td3 = one.algorithm
    batch, scalars, _ = captured(td3, now)
    nets = Recorded(td3.learner)
    finished(td3.update(nets, batch, scalars, policy=True, burn_in=0))
    model = td3.learner.model
    with torch.no_grad():
        noise = (2.0 * nets.drawn[0]).clamp(-0.3, 0.3)
        assert (noise.abs() == 0.3).any()
        action = (torch.tanh(model["target_actor"](batch["next_obs"])) + noise).clamp(-1, 1)
        target = (
            batch["reward"] + batch["discount"] * model["target_critic"](batch["next_obs"], action)[..., 0].min(0)[0]
        )
        q = model["critic"](batch["obs"], batch["action"])[..., 0]
        critic = sum((q[i] - target).square().mean() for i in range(2))
        actor = -model["critic"](batch["obs"], torch.tanh(model["actor"](batch["obs"])))[0].mean()
    assert nets.losses == pytest.approx({"critic": float(critic), "actor": float(actor)}, rel=1e-4)
    close(one)


def test_the_smoothed_target_action_stays_within_the_bounds() -> None:
    """The target policy is at its bound, and the noise points outwards for half of the batch."""
    one, now = started(target_noise=2.0, noise_clip=0.5)
    td3 = one.algorithm
    batch, scalars, _ = captured(td3, now)
    model, nets = td3.learner.model, Recorded(td3.learner)
    with torch.no_grad():
        model["target_actor"][-1].bias.fill_(3.0)
        _, outputs = finished(td3.update(nets, batch, scalars, policy=False, burn_in=0))
        noise = (2.0 * nets.drawn[0]).clamp(-0.5, 0.5)
        free = torch.tanh(model["target_actor"](batch["next_obs"])) + noise
        assert (free > 1.2).any() and (free < 1.0).any()
        value = model["target_critic"](batch["next_obs"], free.clamp(-1, 1))[..., 0].min(0)[0]
        other = model["target_critic"](batch["next_obs"], free)[..., 0].min(0)[0]
        assert (value - other).abs().max() > 1e-3
        q = model["critic"](batch["obs"], batch["action"])[..., 0]
        wanted = (q - batch["reward"] - batch["discount"] * value).abs().mean(0)
    torch.testing.assert_close(outputs["error"], wanted, atol=1e-5, rtol=1e-4)
    close(one)


def test_actor_and_targets_move_every_second_update() -> None:
    one, now = started(policy_delay=2)
    td3 = one.algorithm
    where, moved = td3.learner.where, []
    for _ in range(4):
        before = td3.learner.theta.clone()
        td3.update_controller(now)
        changed = before != td3.learner.theta
        moved.append(tuple(bool(changed[where[name]].any()) for name in ("critic", "actor", "target_actor")))
    assert sorted(set(moved)) == [(True, False, False), (True, True, True)]
    assert moved[0] == moved[2] != moved[1] == moved[3]
    close(one)


def test_exploration_noise_is_only_for_collecting() -> None:
    one, now = started(exploration_noise=0.5)
    td3 = one.algorithm
    obs, first = np.zeros((64, 3), np.float32), np.ones(64, bool)
    assert np.ptp(td3.act(obs, (), first, deterministic=True).action) == 0
    td3.behaviour.uniform = False
    stored, sent, *_ = td3.behaviour.act(obs, (), first)
    assert np.ptp(stored) > 0.5 and np.abs(stored).max() <= 1
    np.testing.assert_allclose(sent, 2 * stored, atol=1e-6)
    close(one)


def test_recurrent() -> None:
    one, now = started("gru", cycles=60, sequence_length=8, burn_in=4)
    batch, _, flags = captured(one.algorithm, now)
    assert batch["obs"].shape[:2] == (13, 16) and flags["burn_in"] == 4
    assert one.algorithm.learner.updates > 0
    close(one)


def test_discrete_actions_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs a bounded Box"):
        build(config(QUICK, env="CartPole-v1"))


def test_n_updates_give_the_known_weights() -> None:
    one, _ = started(cycles=60)
    theta = one.algorithm.learner.theta.double()
    assert (float(theta.sum()), float(theta.square().sum())) == pytest.approx(KNOWN_WEIGHTS, rel=2e-4)
    close(one)


KNOWN_WEIGHTS = (24.892, 47.9114)
