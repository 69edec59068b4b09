"""SAC's targets and gradients against a plain transcription of the paper; actions, temperature, memory."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Normal, TanhTransform, TransformedDistribution

from ludus.algorithms import Context
from ludus.algorithms.sac import SAC, SACConfig
from ludus.config.schema import Network
from ludus.errors import ConfigError
from ludus.experiment import build
from ludus.learning.several_steps import finished
from ludus.types import Spaces
from support import close, config, moment
from toy_learners import Recorded, captured

SMALL = {"actor": {"hidden_dims": [16], "activation": "relu"}, "critic": {"hidden_dims": [16], "activation": "relu"}}
QUICK = {"name": "sac", "batch_size": 16, "learning_starts": 32, "epoch_steps": 64}


def started(
    env: str = "Pendulum-v1", memory: str = "none", cycles: int = 40, environment: dict | None = None, **algorithm
):
    """A run after some cycles of collect and update, and the moment to go on with."""
    cfg = config(
        {**QUICK, **algorithm},
        env=env,
        environment={"num_envs": 2, **(environment or {})},
        network={**SMALL, "memory": memory},
        buffers={"replay": {"type": "uniform", "size": 2_000}},
    )
    one = build(cfg)
    now = moment(cfg.algorithm.config)
    for _ in range(cycles):
        one.algorithm.collect(now)
        one.algorithm.update_controller(now)
    return one, now


def losses(sac, batch, scalars) -> tuple[dict[str, float], list[torch.Tensor]]:
    """The loss of each group, and the noise they were computed with."""
    nets = Recorded(sac.learner)
    finished(sac.update(nets, batch, scalars, learn_alpha=True, burn_in=0))
    return nets.losses, nets.drawn


def test_losses_equal_the_paper_for_continuous_actions() -> None:
    one, now = started()
    sac = one.algorithm
    batch, scalars, _ = captured(sac, now)
    found, (noises,) = losses(sac, batch, scalars)
    model = sac.learner.model
    alpha = model["temperature"].log.exp().detach()

    def draw(obs, noise):
        mean, log_std = model["actor"](obs).chunk(2, -1)
        policy = TransformedDistribution(Normal(mean, log_std.clamp(-20, 2).exp()), TanhTransform(cache_size=1))
        action = torch.tanh(mean + log_std.clamp(-20, 2).exp() * noise)
        return action, policy.log_prob(action.clamp(-1 + 1e-6, 1 - 1e-6)).sum(-1)

    def q(name, obs, action):
        return model[name](obs, action).squeeze(-1)

    with torch.no_grad():
        action, log_pi = draw(batch["next_obs"], noises[0])
        value = q("target_critic", batch["next_obs"], action).min(0).values - alpha * log_pi
        target = batch["reward"] + batch["discount"] * value
        values = q("critic", batch["obs"], batch["action"])
        critic = sum(0.5 * (values[i] - target).square().mean() for i in range(2))
        action, log_pi = draw(batch["obs"], noises[1])
        actor = (alpha * log_pi - q("critic", batch["obs"], action).min(0).values).mean()
        temperature = -(alpha.log() * (log_pi + (-1.0))).mean()  # the wanted entropy is minus one component
    assert found["critic"] == pytest.approx(float(critic), rel=1e-3)
    assert found["actor"] == pytest.approx(float(actor), rel=1e-3)
    assert found["temperature"] == pytest.approx(float(temperature), rel=1e-3, abs=1e-4)
    close(one)


def test_losses_equal_the_paper_for_discrete_actions() -> None:
    one, now = started("CartPole-v1")
    sac = one.algorithm
    batch, scalars, _ = captured(sac, now)
    found, _ = losses(sac, batch, scalars)
    model = sac.learner.model
    alpha = model["temperature"].log.exp().detach()
    with torch.no_grad():
        policy = Categorical(logits=model["actor"](batch["next_obs"]))
        q_next = model["target_critic"](batch["next_obs"]).min(0).values
        value = (policy.probs * (q_next - alpha * policy.probs.log())).sum(-1)
        target = batch["reward"] + batch["discount"] * value
        q = model["critic"](batch["obs"])
        taken = torch.stack([q[..., 0], q[..., 1]])[batch["action"], :, 0, torch.arange(16)][0].T
        critic = 0.5 * (taken - target[0]).square().mean(1).sum()
        policy = Categorical(logits=model["actor"](batch["obs"]))
        actor = (policy.probs * (alpha * policy.probs.log() - q.min(0).values)).sum(-1).mean()
        temperature = (alpha.log() * (policy.entropy() - 0.3 * np.log(2))).mean()
    assert found["critic"] == pytest.approx(float(critic), rel=1e-4)
    assert found["actor"] == pytest.approx(float(actor), rel=1e-4)
    assert found["temperature"] == pytest.approx(float(temperature), rel=1e-3, abs=1e-5)
    close(one)


def test_each_gradient_changes_its_own_part_only() -> None:
    one, now = started()
    sac = one.algorithm
    batch, scalars, static = captured(sac, now)
    for frozen, part in (("lr", "critic"), ("actor_lr", "actor"), ("alpha_lr", "temperature")):
        before = sac.learner.theta.clone()
        sac.learner.update(sac.update, batch, {**scalars, frozen: 0.0, "tau": 0.0}, **static)
        changed = before != sac.learner.theta
        for name, where in sac.learner.where.items():
            assert bool(changed[where].any()) == (name not in (part, "target_critic")), (frozen, name)
    close(one)


def test_temperature_falls_while_entropy_is_above_its_target() -> None:
    one, now = started(target_entropy=-50.0, cycles=20)
    alpha = one.algorithm.learner.model["temperature"].log.detach()
    before = float(alpha)
    for _ in range(20):
        one.algorithm.update_controller(now)
    assert float(alpha) < before
    close(one)
    one, now = started(target_entropy=50.0, cycles=20)
    alpha = one.algorithm.learner.model["temperature"].log.detach()
    before = float(alpha)
    for _ in range(20):
        one.algorithm.update_controller(now)
    assert float(alpha) > before
    close(one)


def test_the_temperature_is_learned_however_small_it_is() -> None:
    """Below exp(-104) the number itself is 0, but its logarithm goes on."""
    one, now = started(target_entropy=50.0, cycles=20)
    log_alpha = one.algorithm.learner.model["temperature"].log
    with torch.no_grad():
        log_alpha.fill_(-110.0)
    one.algorithm.metrics()
    for _ in range(3):
        one.algorithm.update_controller(now)
    assert -110.0 < float(log_alpha.detach()) < -109.0
    assert np.isfinite(list(one.algorithm.metrics().values())).all()
    close(one)


def test_a_fixed_temperature_is_not_learned() -> None:
    one, now = started(alpha=0.2)
    assert float(one.algorithm.learner.model["temperature"].log) == 0.0
    assert one.algorithm.metrics()["policy/alpha"] == pytest.approx(0.2)
    close(one)


def test_critics_see_the_unit_box_and_the_environment_its_own_bounds() -> None:
    one, now = started(cycles=0)
    sac = one.algorithm
    sent, step = [], sac.collector.env.step
    sac.collector.env.step = lambda action: sent.append(action.copy()) or step(action)
    for _ in range(60):
        sac.collect(now)
        sac.update_controller(now)
    batch, *_ = captured(sac, now)
    assert batch["action"].abs().max() <= 1.0
    assert 1.0 < np.abs(sent).max() <= 2.0
    stored = sac.replay["replay"].sample(1_000)["action"]
    assert np.isin(np.round(2 * stored.ravel(), 5), np.round(np.ravel(sent), 5)).all()
    close(one)


def test_nothing_is_learned_before_there_is_enough() -> None:
    one, now = started(cycles=0)
    reports = []
    for _ in range(20):
        one.algorithm.collect(now)
        reports.append(one.algorithm.update_controller(now).updates)
    assert reports == [0] * 15 + [1] * 5  # two environments: 32 steps after sixteen
    close(one)


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_recurrent_batches_are_sequences_and_slots_without_a_step_do_not_matter(env: str) -> None:
    one, now = started(
        env,
        "gru",
        cycles=60,
        sequence_length=8,
        burn_in=4,
        environment={"max_episode_steps": 9, "vectorization": "sync"},
    )
    sac = one.algorithm
    batch, scalars, static = captured(sac, now)
    assert batch["obs"].shape[:2] == (4 + 8 + 1, 16)
    assert batch["reward"].shape == (8, 16)
    assert (batch["weight"] == 0).any() and batch["weight"].mean() == pytest.approx(1.0, abs=1e-5)

    def found(batch) -> dict[str, float]:
        nets = Recorded(sac.learner)
        finished(sac.update(nets, batch, scalars, learn_alpha=True, burn_in=4))
        return nets.losses

    empty = batch["weight"] == 0
    other = {**batch, "reward": torch.where(empty, 1e6, batch["reward"])}
    assert found(other) == found(batch)
    close(one)


def test_a_sequence_of_one_step_without_memory_state_is_a_transition() -> None:
    """The two forms of batches give the same losses for the same step."""
    one, now = started()
    sac = one.algorithm
    batch, scalars, static = captured(sac, now)
    both = {
        **batch,
        "obs": torch.cat([batch["obs"], batch["next_obs"]]),
        "first": torch.zeros(2, 16, dtype=torch.bool),
        "state": (),
        "row": torch.ones(1, 16, dtype=torch.int64),
    }
    assert losses(sac, both, scalars)[0] == pytest.approx(losses(sac, batch, scalars)[0], rel=1e-5)
    close(one)


def test_prioritized_replay_gets_its_errors() -> None:
    cfg = config(
        {**QUICK, "learning_starts": 16, "batch_size": 4},
        env="CartPole-v1",
        network=SMALL,
        training={"total_timesteps": 64},
        buffers={"replay": {"type": "prioritized", "size": 500}},
    )
    told = []
    one = build(cfg)
    buffer = one.algorithm.replay["replay"]
    update = buffer.update_priorities
    buffer.update_priorities = lambda index, priority: told.append(priority.copy()) or update(index, priority)
    one.run()
    close(one)
    assert len(told) == one.progress.updates > 0
    assert np.ptp(np.concatenate(told)) > 0 and np.min(told) >= 0


def test_pixels() -> None:
    """The trunk learns from the critics alone, and its target follows."""
    spaces = Spaces(gym.spaces.Box(0, 255, (3, 40, 40), np.uint8), gym.spaces.Box(-1, 1, (2,), np.float32))
    rng = np.random.default_rng(0)
    context = Context(
        spaces=spaces, network=Network(), num_envs=1, device=torch.device("cpu"), rng=rng, evaluation_rng=rng
    )
    sac = SAC(SACConfig(), context)
    obs = rng.integers(0, 256, (2, 1, 4, 3, 40, 40), np.uint8)
    shape = (1, 4)
    batch = {
        "obs": torch.as_tensor(obs[0]),
        "next_obs": torch.as_tensor(obs[1]),
        "first": torch.zeros(shape, dtype=torch.bool),
        "action": torch.zeros(*shape, 2),
        "reward": torch.ones(shape),
        "discount": torch.ones(shape),
        "weight": torch.ones(shape),
    }
    scalars = {"lr": 1e-3, "actor_lr": 1e-3, "alpha_lr": 1e-3, "tau": 0.5, "alpha": 0.0, "target_entropy": -1.0}
    before = {name: value.clone() for name, value in sac.learner.model.state_dict().items()}
    sac.learner.update(sac.update, batch, {**scalars, "lr": 0.0}, learn_alpha=True, burn_in=0)
    encoder = [name for name in before if "encoder" in name]
    after = sac.learner.model.state_dict()
    assert encoder and all(torch.equal(before[name], after[name]) for name in encoder), "the actor changed the trunk"
    sac.learner.update(sac.update, batch, scalars, learn_alpha=True, burn_in=0)
    assert not any(torch.equal(before[name], after[name]) for name in encoder)
    action = sac.act(obs[0, 0], sac.initial_state(4), np.ones(4, bool), deterministic=True).action
    assert action.shape == (4, 2)


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_n_updates_give_the_known_weights(env: str, memory: str) -> None:
    """Refactoring must not change what is learned; sums, because the last bits depend on the machine."""
    one, _ = started(env, memory, cycles=60, sequence_length=8, burn_in=4)
    theta = one.algorithm.learner.theta.double()
    known = KNOWN_WEIGHTS[env, memory]
    assert (float(theta.sum()), float(theta.square().sum())) == pytest.approx(known, rel=2e-4)
    close(one)


KNOWN_WEIGHTS = {
    ("Pendulum-v1", "none"): (20.2384, 41.914),
    ("Pendulum-v1", "gru"): (26.8052, 300.312),
    ("CartPole-v1", "none"): (15.7745, 48.397),
    ("CartPole-v1", "gru"): (40.9913, 305.84),
}


class Unbounded(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


def test_spaces_it_cannot_act_in_are_named() -> None:
    if "Probe/Unbounded-v0" not in gym.registry:
        gym.register("Probe/Unbounded-v0", Unbounded)
    with pytest.raises(ConfigError, match="needs Discrete or a bounded Box"):
        build(config(QUICK, env="Probe/Unbounded-v0"))


def test_a_buffer_too_small_to_begin_with_is_refused() -> None:
    with pytest.raises(ConfigError, match="never fit"):
        build(config({**QUICK, "learning_starts": 5_000}, env="Pendulum-v1", buffers={"replay": {"size": 100}}))
