"""REINFORCE: hand-computed targets, open episodes left out, no value network."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from ludus.data.rollout import Rollout
from ludus.errors import ConfigError
from ludus.experiment import build
from support import close, config, moment


def rollout() -> Rollout:
    """Two environments, five steps; the first ends after three steps, the second never."""
    reward = np.array([[1, 1], [2, 1], [3, 1], [4, 1], [5, 1]], np.float32)
    terminated = np.zeros((5, 2), bool)
    terminated[2, 0] = True
    nothing = np.zeros((5, 2), bool)
    first = np.zeros((6, 2), bool)
    return Rollout(
        obs=np.zeros((6, 2, 4), np.float32),
        action=np.zeros((5, 2), np.int64),
        reward=reward,
        terminated=terminated,
        truncated=nothing,
        first=first,
        state=(),
        last_state=(),
        ends=None,
        raw_obs=np.zeros((6, 2, 4), np.float32),
        raw_reward=reward,
        start=0,
    )


@pytest.mark.parametrize(
    ("returns", "expected"),
    [("mc:rtg", [1 + 0.5 * (2 + 0.5 * 3), 2 + 0.5 * 3, 3]), ("mc:episode", [2.75, 2.75, 2.75])],
)
def test_returns_by_hand(returns: str, expected: list[float]) -> None:
    cfg = config({"name": "reinforce", "gamma": 0.5, "returns": returns})
    run = build(cfg)
    target, weight = run.algorithm.targets(rollout(), moment(cfg.algorithm.config))
    np.testing.assert_allclose(target[:3, 0], expected)
    np.testing.assert_array_equal(weight, [[1, 0], [1, 0], [1, 0], [0, 0], [0, 0]])
    close(run)


def test_advantages_subtract_the_mean_return() -> None:
    cfg = config({"name": "reinforce", "gamma": 0.5, "targets": "advantages"})
    run = build(cfg)
    target, weight = run.algorithm.targets(rollout(), moment(cfg.algorithm.config))
    assert float((target * weight).sum()) == pytest.approx(0, abs=1e-5)
    cfg = config({"name": "reinforce", "targets": "advantages", "normalize": True})
    target, weight = run.algorithm.targets(rollout(), moment(cfg.algorithm.config))
    assert float((target**2 * weight).sum() / weight.sum()) == pytest.approx(1, abs=1e-4)
    close(run)


def test_nothing_finished_means_nothing_learned() -> None:
    cfg = config({"name": "reinforce", "rollout_steps": 8}, env="Pendulum-v1")
    run = build(cfg)
    now = moment(cfg.algorithm.config)
    assert run.algorithm.collect(now).env_steps == 32
    assert run.algorithm.update_controller(now).idle
    close(run)


def test_policy_only() -> None:
    run = build(config("reinforce"))
    assert run.algorithm.policy.critic is None
    assert not any("critic" in name for name in run.algorithm.policy.state_dict())
    close(run)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_one_update_per_rollout(memory: str) -> None:
    cfg = config({"name": "reinforce", "rollout_steps": 128}, network={"memory": memory})
    run = build(cfg)
    now = moment(cfg.algorithm.config)
    run.algorithm.collect(now)
    report = run.algorithm.update_controller(now)
    assert report.updates == 1
    assert report.metrics["policy/entropy"] > 0
    close(run)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_accumulating_changes_no_gradient(memory: str) -> None:
    """Environments with more open steps than others: parts are weighed by the steps that count, not alike."""
    thetas = []
    for accumulate in (1, 3):
        cfg = config(
            {"name": "reinforce", "rollout_steps": 40, "accumulate": accumulate, "targets": "advantages"},
            network={"memory": memory},
        )
        run = build(cfg)
        now = moment(cfg.algorithm.config)
        run.algorithm.collect(now)
        counted = run.algorithm.experience["weight"].sum(0)
        assert len(set(counted.tolist())) > 1
        run.algorithm.update_controller(now)
        thetas.append(run.algorithm.learner.grad.clone())
        close(run)
    torch.testing.assert_close(thetas[0], thetas[1], atol=1e-7, rtol=1e-4)


def test_more_parts_than_environments_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.accumulate: 4 environments cannot be cut into 5 parts"):
        build(config({"name": "reinforce", "accumulate": 5}))


def test_loss_by_hand() -> None:
    """-E[log pi(a|s) G] - c S over the steps that count."""
    cfg = config({"name": "reinforce", "rollout_steps": 64, "entropy_coef": 0.3})
    run = build(cfg)
    reinforce = run.algorithm
    reinforce.collect(moment(cfg.algorithm.config))
    batch = reinforce.experience
    counted = batch["weight"] > 0
    assert counted.any() and not counted.all()
    loss, _ = reinforce.loss(reinforce.policy, batch, {"entropy_coef": 0.3})
    pi = torch.distributions.Categorical(logits=reinforce.policy(batch["obs"], (), batch["first"])[0])
    gain = (pi.log_prob(batch["action"]) * batch["target"])[counted].mean()
    torch.testing.assert_close(loss, -gain - 0.3 * pi.entropy()[counted].mean())
    close(run)


def test_a_broken_episode_has_no_return() -> None:
    """Environment 0 loses a worker in its second episode: of its two, only the first weighs anything."""
    lost = np.zeros((5, 2), bool)
    lost[4, 0] = True
    one = dataclasses.replace(rollout(), broken=lost, truncated=lost)
    cfg = config("reinforce")
    run = build(cfg)
    _, weight = run.algorithm.targets(one, moment(cfg.algorithm.config))
    np.testing.assert_array_equal(weight, [[1, 0], [1, 0], [1, 0], [0, 0], [0, 0]])
    close(run)
