"""PPO's invariants: ratio 1 on the first minibatch, true bootstraps, honest options."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ludus.algorithms._on_policy import advantages
from ludus.data.rollout import minibatches
from ludus.errors import ConfigError
from ludus.experiment import build
from ludus.registry import MEMORY
from ludus.types import to_device
from support import close, config, moment, run

CORES = MEMORY.names()


def collected(memory: str = "none", env: str = "CartPole-v1", rollouts: int = 3, **algorithm):
    cfg = config(
        {"name": "ppo", "rollout_steps": 64, "batch_size": 0.25, **algorithm},
        env=env,
        network={"memory": memory},
        training={"total_timesteps": 100_000},
    )
    run = build(cfg)
    now = moment(cfg.algorithm.config)
    for _ in range(rollouts):
        run.algorithm.collect(now)
    return run, now


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
@pytest.mark.parametrize("memory", CORES)
def test_ratio_is_one_on_the_first_minibatch(memory: str, env: str) -> None:
    """With episode ends inside the rollout and state carried over from earlier ones."""
    run, now = collected(memory, env)
    ppo = run.algorithm
    assert ppo.experience.columns["first"][1:].any() or env == "Pendulum-v1"
    seen = 0
    for batch in minibatches(ppo.experience.columns, ppo.experience.state, 4, ppo.rng, sequences=ppo.policy.recurrent):
        _, metrics = ppo.loss(
            ppo.policy,
            batch,
            {"clip": 0.2, "value_coef": 1, "entropy_coef": 0},
            clip_value=False,
            normalize=True,
            bonus=True,
        )
        params, value, _ = ppo.policy(batch["obs"], batch["state"], batch["first"])
        ratio = (ppo.policy.distribution.log_prob(params, batch["action"]) - batch["log_prob"]).exp()
        torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=1e-5, rtol=0)
        torch.testing.assert_close(value, batch["value"], atol=1e-4, rtol=1e-4)
        assert metrics["policy/clip_fraction"] == 0
        seen += ratio.numel()
    assert seen == 64 * 4
    close(run)


@pytest.mark.parametrize("memory", CORES)
def test_the_acting_policy_is_the_learned_one(memory: str) -> None:
    """Log-probabilities taken step by step while acting equal those of the one pass over the rollout."""
    run, now = collected(memory, rollouts=1)
    ppo, collector = run.algorithm, run.algorithm.collector
    seen = []
    original = ppo.behaviour.actor

    class Spy:
        def __getattr__(self, name):
            return getattr(original, name)

        def __call__(self, obs, state, first, rng):
            outputs, state = original(obs, state, first, rng)
            seen.append(outputs("actor").copy())
            return outputs, state

    ppo.behaviour.actor = Spy()
    ppo.update_controller(now)
    ppo.collect(now)
    log_prob = ppo.policy.distribution.log_prob(torch.as_tensor(np.stack(seen)), ppo.experience.columns["action"])
    torch.testing.assert_close(log_prob, ppo.experience.columns["log_prob"], atol=1e-5, rtol=1e-5)
    assert collector.num_envs == 4
    close(run)


@torch.no_grad()
def step_by_step(ppo, rollout) -> tuple[np.ndarray, dict]:
    """Values of every observation, and of true final ones, one step at a time as a policy at work would see them."""
    state = to_device(rollout.state, torch.device("cpu"))
    values, finals = [], {}
    where = {(int(t), int(b)): i for i, (t, b) in enumerate(zip(rollout.finals.t, rollout.finals.b, strict=True))}
    go_on = torch.zeros(1, 4, dtype=torch.bool)
    for t in range(len(rollout.obs)):
        obs, first = torch.as_tensor(rollout.obs[t : t + 1]), torch.as_tensor(rollout.first[t : t + 1])
        _, value, state = ppo.policy(obs, state, first)
        values.append(value[0].numpy())
        for b in range(4):
            if (t, b) in where:
                last = torch.as_tensor(rollout.finals.obs[where[t, b]]).expand(1, 4, -1)
                finals[t, b] = float(ppo.policy(last, state, go_on)[1][0, b])
    return np.stack(values), finals


@pytest.mark.parametrize("memory", CORES)
def test_advantages_equal_brute_force_per_episode(memory: str) -> None:
    """Cut by hand into episodes, with values of the true final observation at truncations."""
    cfg = config(
        {"name": "ppo", "rollout_steps": 96, "gamma": 0.9, "gae_lambda": 0.8},
        environment={"max_episode_steps": 11, "vectorization": "sync"},
        network={"memory": memory},
        training={"total_timesteps": 100_000},
    )
    run = build(cfg)
    ppo, now = run.algorithm, moment(cfg.algorithm.config)
    ppo.collect(now)
    ppo.update_controller(now)
    rollout = ppo.collector.collect(ppo.behaviour, 96)
    columns, _ = advantages(ppo.policy, rollout, 0.9, 0.8)
    assert rollout.terminated.any() and (rollout.truncated & ~rollout.terminated).any()
    values, finals = step_by_step(ppo, rollout)
    for b in range(4):
        following = 0.0
        for t in reversed(range(96)):
            done = rollout.done[t, b]
            if rollout.terminated[t, b]:
                bootstrap = 0.0
            elif rollout.truncated[t, b]:
                bootstrap = finals[t, b]
            else:
                bootstrap = values[t + 1, b]
            delta = rollout.reward[t, b] + 0.9 * bootstrap - values[t, b]
            following = delta + (0.0 if done else 0.9 * 0.8 * following)
            assert columns["advantage"][t, b] == pytest.approx(following, abs=1e-4)
    close(run)


def test_stored_action_is_the_drawn_one_and_the_environment_gets_the_clipped_one() -> None:
    cfg = config({"name": "ppo", "rollout_steps": 64}, env="Pendulum-v1")
    run = build(cfg)
    ppo = run.algorithm
    with torch.no_grad():
        ppo.policy.actor.log_std.fill_(2.0)  # far beyond the bounds of +-2
    ppo.learner.version += 1
    sent, env = [], ppo.collector.env
    step = env.step
    env.step = lambda action: sent.append(action.copy()) or step(action)
    ppo.collect(moment(cfg.algorithm.config))
    stored, sent = ppo.experience.columns["action"].numpy(), np.stack(sent)
    assert np.abs(stored).max() > 2.0
    assert np.abs(sent).max() <= 2.0
    np.testing.assert_array_equal(np.clip(stored, -2, 2), sent)
    close(run)


def test_target_kl_stops_only_the_current_rollout() -> None:
    run, now = collected(rollouts=1, target_kl=1e-9, epochs=5, lr=0.01)
    for _ in range(3):
        report = run.algorithm.update_controller(now)
        assert report.metrics["opt/epochs"] == 1
        assert report.updates == 4
        run.algorithm.collect(now)
    close(run)


def test_a_rollout_is_learned_from_once() -> None:
    run, now = collected(rollouts=1)
    assert run.algorithm.update_controller(now).updates == 16
    assert run.algorithm.update_controller(now).idle
    close(run)


def test_gradient_norms_per_part_and_diagnostics() -> None:
    run, now = collected(memory="gru")
    metrics = run.algorithm.update_controller(now).metrics
    for part in ("trunk", "actor_head", "critic_head", "all"):
        assert metrics[f"opt/grads/norm/{part}"] > 0
    for name in ("policy/kl", "policy/clip_fraction", "policy/entropy", "loss/policy", "loss/value", "policy_lr"):
        assert name in metrics
    close(run)


@pytest.mark.parametrize("clip_value", [None, 0.1])
def test_value_clipping_limits_the_gradient(clip_value: float | None) -> None:
    run, now = collected(clip_value=clip_value)
    ppo = run.algorithm
    (batch,) = minibatches(ppo.experience.columns, (), 1, ppo.rng, sequences=False)
    batch = {**batch, "value": batch["value"] - 5.0, "target": batch["value"] - 4.0}  # already 5 above, target below
    numbers = {"clip": 0.2, "clip_value": 0.1, "value_coef": 1.0, "entropy_coef": 0.0}
    _, metrics = ppo.loss(ppo.policy, batch, numbers, clip_value=clip_value is not None, normalize=True, bonus=True)
    expected = 0.5 * 4.0**2  # (V - target)^2 is the larger of the two: 16 against 0.9^2
    assert metrics["loss/value"].item() == pytest.approx(expected, rel=1e-3)
    close(run)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ({"batch_size": 100}, "does not divide"),
        ({"batch_size": 10_000}, "does not divide"),
        ({"rollout_steps": 1, "batch_size": 1}, None),
        ({"batch_size": 0.00390625}, "at least 2"),
    ],
)
def test_batch_sizes_that_cannot_work(algorithm: dict, message: str | None) -> None:
    cfg = config({"name": "ppo", "rollout_steps": 64, **algorithm})
    if message is None:
        close(build(cfg))
        return
    with pytest.raises(ConfigError, match=message):
        build(cfg)


def test_less_than_a_sequence_is_one() -> None:
    cfg = config({"name": "ppo", "rollout_steps": 64, "batch_size": 32, "epochs": 1}, network={"memory": "gru"})
    one, now, seen = build(cfg), moment(cfg.algorithm.config), []
    update = one.algorithm.learner.update
    one.algorithm.learner.update = lambda f, b, *a, **k: seen.append(b["first"].shape) or update(f, b, *a, **k)
    one.algorithm.collect(now)
    assert one.algorithm.update_controller(now).updates == 4
    assert seen == [(64, 1)] * 4
    close(one)


def test_fractional_batch_is_a_part_of_the_rollout() -> None:
    assert config({"name": "ppo", "batch_size": 0.5}).algorithm.config.steps_per_batch(1_024) == 512
    assert config({"name": "ppo", "batch_size": 1}).algorithm.config.steps_per_batch(1_024) == 1_024


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_accumulating_equals_a_larger_batch(memory: str) -> None:
    """Advantages are normalised over all that is accumulated, sequences stay whole."""
    settings = {"max_grad_norm": None, "optimizer": {"type": "sgd"}, "clip_value": 0.2, "entropy_coef": 0.01}
    thetas, counts = [], []
    for batch_size, accumulate in ((0.5, 1), (0.25, 2)):
        run, now = collected(memory, batch_size=batch_size, accumulate=accumulate, **settings)
        counts.append(run.algorithm.update_controller(now).updates)
        thetas.append(run.algorithm.learner.theta.clone())
        close(run)
    assert counts == [8, 8]
    torch.testing.assert_close(thetas[0], thetas[1], atol=1e-6, rtol=1e-5)


def test_what_cannot_be_accumulated_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.accumulate: 3 does not divide the 4 minibatches"):
        collected(accumulate=3)


@pytest.mark.parametrize(("value_coef", "entropy_coef"), [(0.5, 0.0), (2.0, 0.0), (0.5, 0.3)])
def test_loss_by_hand(value_coef: float, entropy_coef: float) -> None:
    """Equation 9 written out: L = -L_clip + c1 L_value - c2 S."""
    run, now = collected(rollouts=1)
    ppo = run.algorithm
    batch = {**ppo.experience.columns, "state": (), "log_prob": ppo.experience.columns["log_prob"] + 0.3}
    numbers = {"clip": 0.2, "value_coef": value_coef, "entropy_coef": entropy_coef}
    loss, _ = ppo.loss(ppo.policy, batch, numbers, clip_value=False, normalize=False, bonus=entropy_coef > 0)
    params, value, _ = ppo.policy(batch["obs"], (), batch["first"])
    pi = torch.distributions.Categorical(logits=params)
    ratio, a = (pi.log_prob(batch["action"]) - batch["log_prob"]).exp(), batch["advantage"]
    surrogate = torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
    error = 0.5 * (value - batch["target"]).square().mean()
    torch.testing.assert_close(loss, -surrogate + value_coef * error - entropy_coef * pi.entropy().mean())
    close(run)


def test_the_bonus_raises_the_entropy() -> None:
    """One update with nothing but the bonus: the policy becomes more random, never less."""
    found = []
    for coef in (0.0, 10.0):
        run, now = collected(rollouts=1, entropy_coef=coef, lr=1e-3, epochs=1, value_coef=0.0)
        with torch.no_grad():
            run.algorithm.policy.actor[-1].bias.copy_(torch.tensor([0.5, -0.5]))
        run.algorithm.experience.columns["advantage"].zero_()
        run.algorithm.update_controller(now)
        params = run.algorithm.policy(torch.zeros(1, 1, 4), (), torch.ones(1, 1, dtype=torch.bool))[0]
        found.append(float(run.algorithm.policy.distribution.entropy(params).detach()))
        close(run)
    assert found[1] > found[0]


SHORT = {"rollout_steps": 8, "epochs": 1, "batch_size": 0.25}


@pytest.mark.parametrize("algorithm", ["ppo", "ppo_replay"])
@pytest.mark.parametrize(("envs", "memory", "tail"), [(1, "none", 1), (1, "none", 3), (2, "none", 2), (2, "none", 4),
                                                      (4, "none", 4), (4, "lstm", 4), (1, "gru", 1)])  # fmt: skip
def test_the_last_rollout_may_be_short(envs: int, memory: str, tail: int, algorithm: str) -> None:
    """Down to a single step: what it teaches is finite."""
    cfg = config(
        {"name": algorithm, **SHORT},
        environment={"num_envs": envs},
        network={"memory": memory},
        training={"total_timesteps": 8 * envs + tail},
    )
    run = build(cfg)
    run.run()
    assert run.progress.env_steps == 8 * envs + tail
    assert torch.isfinite(run.algorithm.learner.theta).all()
    close(run)


def test_a_phase_may_cut_a_rollout_short() -> None:
    phases = [{"name": "a", "hooks": ["collect", "update_controller"], "duration_steps": 18},
              {"name": "b", "hooks": ["collect", "update_controller"]}]  # fmt: skip
    training = {"total_timesteps": 34, "phases": phases}
    cfg = config({"name": "ppo", **SHORT}, environment={"num_envs": 2}, training=training)
    run = build(cfg)
    run.run()
    assert run.progress.env_steps == 34
    assert torch.isfinite(run.algorithm.learner.theta).all()
    close(run)


@pytest.mark.parametrize(("size", "count"), [(512, 4), (8, 4), (7, 3), (4, 2), (3, 1), (2, 1), (1, 1)])
def test_minibatches_have_two_steps_at_least(size: int, count: int) -> None:
    columns = {"advantage": torch.arange(size, dtype=torch.float32).reshape(size, 1)}
    cfg = config({"name": "ppo", "batch_size": 0.25}).algorithm.config
    found = list(minibatches(columns, (), cfg.minibatches(size, size), np.random.default_rng(0), sequences=False))
    assert len(found) == count
    assert all(batch["advantage"].numel() >= min(2, size) for batch in found)
    together = torch.cat([batch["advantage"] for batch in found], 1).flatten().sort().values
    torch.testing.assert_close(together, columns["advantage"].flatten())


def test_a_phase_may_switch_a_term_of_the_loss_on_and_off() -> None:
    phases = [
        {"name": name, "hooks": ["collect", "update_controller"], "set": changes, "duration_steps": 128}
        for name, changes in (("off", {}), ("on", {"clip_value": 0.2}), ("off again", {}))
    ]
    done = run(
        config(
            {"name": "ppo", "rollout_steps": 16, "batch_size": 0.5, "epochs": 2},
            training={"total_timesteps": 384, "phases": phases},
        )
    )
    assert done.progress.updates == 24
