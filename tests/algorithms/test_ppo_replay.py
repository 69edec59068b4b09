"""Replayed rollouts: true weights, capped; V-trace equals GAE where nothing is off-policy; final slots are nothing."""

from __future__ import annotations

import pytest
import torch

from ludus.algorithms.ppo_replay import prepared
from ludus.errors import ConfigError
from support import build, close, config, moment, run

ENV = {"num_envs": 4, "max_episode_steps": 11, "vectorization": "sync"}


def started(memory: str = "none", cycles: int = 4, env: str = "CartPole-v1", **algorithm):
    settings = {"name": "ppo_replay", "rollout_steps": 16, "batch_size": 0.5, "replay_ratio": 2, "lr": 1e-2}
    cfg = config({**settings, **algorithm}, env=env, environment=ENV, network={"memory": memory})
    one = build(cfg)
    now = moment(cfg.algorithm.config)
    for _ in range(cycles):
        one.algorithm.collect(now)
        one.algorithm.update_controller(now)
    return one, now


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_replayed_steps_of_an_unchanged_policy_are_fresh_ones(memory: str) -> None:
    """Weights 1 and log-probabilities of the rollout they come from, in the middle of sequences too."""
    one, now = started(memory, cycles=0, gamma=0.9, gae_lambda=0.8)
    ppo = one.algorithm
    ppo.collect(now)
    fresh = {name: column.clone() for name, column in ppo.experience.columns.items()}
    columns, _ = ppo.replayed(ppo.replay["replay"], now, 13, 4)
    used = columns["used"] > 0
    assert used.float().mean() < 1, "a final observation lies among them"
    torch.testing.assert_close(columns["weight"][used], torch.ones(int(used.sum())), atol=1e-4, rtol=0)
    assert not columns["weight"][~used].any() and not columns["advantage"][~used].any()
    whole = fresh["obs"].flatten(0, 1)
    for t, b in zip(*torch.where(used[:1]), strict=True):
        same = (whole == columns["obs"][t, b]).all(-1)
        assert same.sum() == 1
        fresh_log_prob = fresh["log_prob"].flatten()[same][0]
        torch.testing.assert_close(columns["log_prob"][t, b], fresh_log_prob, atol=1e-4, rtol=1e-4)
    close(one)


def test_vtrace_of_own_steps_is_gae() -> None:
    """A stretch that ends where the rollout ends has the rollout's own advantages."""
    one, now = started(cycles=0, gamma=0.9, gae_lambda=0.8, rollout_steps=64)
    ppo = one.algorithm
    ppo.collect(now)
    fresh = ppo.experience.columns
    columns, _ = ppo.replayed(ppo.replay["replay"], now, 24, 4)
    checked = 0
    flat = fresh["obs"].flatten(0, 1)
    for b in range(columns["obs"].shape[1]):
        ends = torch.where(columns["used"][:, b] == 0)[0]
        for t in range(int(ends[0]) if len(ends) else 0):  # its episode ends within: nothing is cut off
            row = (flat == columns["obs"][t, b]).all(-1)
            for name in ("advantage", "target"):
                torch.testing.assert_close(columns[name][t, b], fresh[name].flatten()[row][0], atol=1e-3, rtol=1e-3)
            checked += 1
    assert checked > 10
    close(one)


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_weights_are_capped(memory: str, env: str) -> None:
    one, now = started(memory, env=env, replay_is_clip=1.05)
    ppo = one.algorithm
    ppo.collect(now)
    weight = ppo.experience.columns["weight"]
    assert weight.shape == (16, 4 * (1 + 2))
    assert weight.max() == pytest.approx(1.05)
    assert (weight[:, :4] == 1).all()
    close(one)


def minibatch(one, now) -> dict:
    """All that would be learned from in the next cycle, as one batch."""
    one.algorithm.collect(now)
    columns = {name: column.clone() for name, column in one.algorithm.experience.columns.items()}
    assert (columns["used"] == 0).any()
    return {**columns, "state": ()}


NUMBERS = {"clip": 0.2, "value_coef": 0.5, "entropy_coef": 0.01}


def test_slots_without_a_step_have_no_part_in_the_loss() -> None:
    """Whatever stands there: the loss, its gradient and every metric stay the same."""
    one, now = started(entropy_coef=0.01)
    ppo = one.algorithm
    batch = minibatch(one, now)
    empty = batch["used"] == 0
    other = dict(batch)
    for name, value in (("target", 50.0), ("advantage", -9.0), ("log_prob", -3.0), ("weight", 0.0)):
        other[name] = torch.where(empty, torch.tensor(value), batch[name])
    other["obs"] = torch.where(empty.unsqueeze(-1), torch.tensor(2.0), batch["obs"])
    found = []
    for one_batch in (batch, other):
        ppo.policy.zero_grad()
        loss, metrics = ppo.loss(ppo.policy, prepared(one_batch, normalize=True), NUMBERS)
        loss.backward()
        gradient = torch.cat([p.grad.flatten() for p in ppo.policy.parameters() if p.grad is not None])
        found.append((loss.detach(), gradient.clone(), {name: value.detach() for name, value in metrics.items()}))
    torch.testing.assert_close(found[0], found[1])
    close(one)


def test_the_loss_is_a_mean_over_steps() -> None:
    """Written out over the steps alone, advantages normalised over them."""
    one, now = started()
    ppo = one.algorithm
    batch = minibatch(one, now)
    loss, metrics = ppo.loss(ppo.policy, prepared(batch, normalize=True), NUMBERS)
    used = batch["used"] > 0
    params, value, _ = ppo.policy(batch["obs"], (), batch["first"])
    log_prob, entropy = (
        ppo.policy.distribution.log_prob(params, batch["action"])[used],
        ppo.policy.distribution.entropy(params)[used],
    )
    ratio = (log_prob - batch["log_prob"][used]).exp()
    advantage = batch["advantage"][used]
    advantage = batch["weight"][used] * (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    value_loss = 0.5 * (value[used] - batch["target"][used]).square().mean()
    torch.testing.assert_close(metrics["loss/policy"], policy_loss)
    torch.testing.assert_close(metrics["loss/value"], value_loss)
    torch.testing.assert_close(metrics["policy/entropy"], entropy.mean())
    torch.testing.assert_close(loss, policy_loss + 0.5 * value_loss - 0.01 * entropy.mean())
    torch.testing.assert_close(metrics["policy/kl"], (ratio - 1 - ratio.log()).mean())
    close(one)


def test_a_minibatch_of_one_step_is_finite() -> None:
    one, now = started()
    batch = minibatch(one, now)
    step = {name: column[:1, :1] for name, column in batch.items() if name != "state"}
    step = prepared({**step, "state": ()}, normalize=True)
    loss, _ = one.algorithm.loss(one.algorithm.policy, step, NUMBERS)
    assert torch.isfinite(loss)
    close(one)


def test_the_first_rollout_has_nothing_to_replay_and_ratio_zero_never_has() -> None:
    one, now = started(cycles=0)
    one.algorithm.collect(now)
    assert one.algorithm.experience.columns["weight"].shape == (16, 4)
    close(one)
    one, now = started(replay_ratio=0)
    one.algorithm.collect(now)
    assert one.algorithm.experience.columns["weight"].shape == (16, 4)
    close(one)


def test_minibatches_keep_their_size() -> None:
    one, now = started(cycles=3)
    seen = []
    update = one.algorithm.learner.update
    one.algorithm.learner.update = lambda f, b, *a, **k: seen.append(b["advantage"].numel()) or update(f, b, *a, **k)
    one.algorithm.collect(now)
    report = one.algorithm.update_controller(now)
    assert set(seen) == {32} and report.updates == len(seen) == 4 * 2 * 3
    close(one)


def test_runs_and_reports_its_weights() -> None:
    cfg = config({"name": "ppo_replay", "rollout_steps": 32, "replay_ratio": 1}, training={"total_timesteps": 1_024})
    done = run(cfg)
    assert done.progress.env_steps == 1_024


def test_batch_sizes_that_cannot_work() -> None:
    with pytest.raises(ConfigError, match="does not divide"):
        build(config({"name": "ppo_replay", "rollout_steps": 16, "batch_size": 100}))


def test_a_short_rollout_has_two_steps_per_minibatch() -> None:
    """Four minibatches of a quarter each, where there are quarters to be had."""
    cfg = config({"name": "ppo_replay", "rollout_steps": 16, "epochs": 1}, environment={"num_envs": 1})
    one = build(cfg)
    for steps, updates in ((16, 4), (6, 3), (3, 1), (1, 1)):
        now = moment(cfg.algorithm.config.model_copy(update={"rollout_steps": steps, "replay_ratio": 0}))
        one.algorithm.collect(now)
        report = one.algorithm.update_controller(now)
        assert report.updates == updates
        assert torch.isfinite(one.algorithm.learner.theta).all()
    close(one)


def test_a_buffer_with_too_few_beginnings_for_its_ratio_is_refused() -> None:
    """As many old rollouts as asked for begin at steps of their own: with fewer it would never replay."""

    def cfg(size: int):
        buffers = {"replay": {"type": "uniform", "size": size}}
        return config({"name": "ppo_replay", "rollout_steps": 16, "replay_ratio": 4}, buffers=buffers)

    with pytest.raises(ConfigError, match=r"algorithm\.replay_ratio.*raise buffers\.replay\.size to 76 or more"):
        build(cfg(75))
    one = build(cfg(76))
    now = moment(one.config.algorithm.config)
    for _ in range(3):
        one.algorithm.collect(now)
    assert one.algorithm.experience.columns["weight"].shape == (16, 4 + 16)
    close(one)
