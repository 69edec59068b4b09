"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905), for bounded and for discrete actions (arXiv:1910.07207).

Reading order: SACConfig -> collect -> update_controller -> update -> soft_value.
With a memory core batches are sequences: the memory of the first step is the one stored while collecting, the first
`burn_in` steps only bring it up to date. The critics train the trunk (encoder and memory); the actor reads it.

Shapes: T time, B batch, N critics, D features, A actions.
"""

from __future__ import annotations

import math
from typing import Literal

import gymnasium as gym
import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ludus.acting.exploration import SampleSquashed, check_bounded
from ludus.algorithms import Context, PhaseContext
from ludus.algorithms._replay import ReplayAlgorithm, ReplayBuffers, ReplayConfig, build_actor_critic
from ludus.config.schedule import NonNegativeSchedule, PositiveSchedule, UnitSchedule, constant
from ludus.learning.learner import Batch, Networks, Scalars
from ludus.learning.several_steps import Steps
from ludus.math.distributions import Distribution, SquashedGaussian, distribution_for
from ludus.math.policy_gradient import Scalar
from ludus.networks.critics import WIDE, Critics, Temperature, features_with_target
from ludus.networks.policy import ActorHead, Trunk
from ludus.registry import ALGORITHMS
from ludus.types import Report


class SACConfig(ReplayConfig):
    """Soft actor-critic."""

    fixed = ReplayConfig.fixed | {"critics", "initial_alpha", "target_entropy", "sequence_length"}
    search = {**ReplayConfig.search, "tau": "0.005,0.01,0.02"}

    actor_lr: PositiveSchedule | None = None
    """Learning rate of the actor; none: `lr`."""
    alpha_lr: PositiveSchedule | None = None
    """Learning rate of the temperature; none: `lr`."""
    tau: UnitSchedule = constant(0.005)
    """How far the target critics move towards the critics at each update."""
    critics: PositiveInt = 2
    """Critics; the smallest of their values counts."""
    alpha: Literal["auto"] | NonNegativeSchedule = "auto"
    """Temperature: weight of the entropy; `auto` learns the one that gives `target_entropy`."""
    initial_alpha: float = Field(default=1.0, gt=0)
    """Where a learned temperature starts."""
    target_entropy: float | Literal["auto"] = "auto"
    """`auto` is minus the number of action components, or 0.3 of the largest possible entropy for discrete actions."""


@ALGORITHMS.register("sac")
class SAC(ReplayAlgorithm):
    """Maximum-entropy actor-critic with an ensemble of critics and a learned temperature."""

    Config = SACConfig
    data_parallel = True
    buffers = {"replay": {"type": "uniform", "size": 1_000_000}}

    def __init__(self, cfg: SACConfig, context: Context) -> None:
        space = context.spaces.action
        check_bounded("sac", space, discrete=True)
        self.collector, self.default_cycle, self.epoch_steps = context.collector, cfg.cycle, cfg.epoch_steps
        self.discrete = isinstance(space, gym.spaces.Discrete)
        self.distribution = distribution_for(space, squash=True)
        self.target_entropy = target_entropy(cfg, self.distribution)
        trunk = Trunk(context.network, context.spaces.observation, context.precision)
        outputs = self.distribution.param_dim
        shape = {"outputs": outputs} if self.discrete else {"action_dim": outputs // 2}
        networks: dict[str, nn.Module] = {
            "trunk": trunk,
            "critic": Critics(context.network.critic, trunk, cfg.critics, **shape),
            "actor": ActorHead(context.network.actor, trunk, outputs, default=WIDE),
            "temperature": Temperature(cfg.initial_alpha),
        }
        strategy = SampleSquashed(self.distribution, space)
        self.learner, self.behaviour = build_actor_critic(cfg, context, networks, ("trunk", "critic"), strategy)
        self.replay = ReplayBuffers(context, trunk, self.learner, self.behaviour)

    def update_controller(self, now: PhaseContext) -> Report:
        """One gradient step on critics, actor and temperature."""
        cfg: SACConfig = now.cfg
        scalars = {
            "lr": now.at(cfg.lr),
            "actor_lr": now.at(cfg.actor_lr or cfg.lr),
            "alpha_lr": now.at(cfg.alpha_lr or cfg.lr),
            "tau": now.at(cfg.tau),
            "alpha": 0.0 if cfg.alpha == "auto" else now.at(cfg.alpha),
            "target_entropy": self.target_entropy,
        }
        return self.replay.learn(self.update, now, scalars, learn_alpha=cfg.alpha == "auto")

    def update(self, nets: Networks, batch: Batch, c: Scalars, *, learn_alpha: bool, burn_in: int) -> Steps:
        """Critics towards the soft target, actor towards the critics, temperature towards the wanted entropy."""
        features, following, target_following = features_with_target(nets.trunk, nets.target_trunk, batch, burn_in)
        weight, size = batch["weight"], self.distribution.param_dim // 2
        noise = (None, None) if self.discrete else nets.noise((2, *batch["reward"].shape, size))
        alpha = nets.temperature().exp().detach() if learn_alpha else c["alpha"]

        with torch.no_grad():
            value, _ = self.soft_value(nets.target_critic, target_following, nets.actor(following), noise[0], alpha)
            target_TB = batch["reward"] + batch["discount"] * value
        q_NTB = nets.critic.judge(features, batch["action"])
        error_NTB = q_NTB - target_TB
        critic_loss = 0.5 * (weight * error_NTB.square()).mean((1, 2)).sum()
        nets.step("critic", critic_loss, c["lr"])
        yield

        features = features.detach()
        value, entropy = self.soft_value(nets.critic, features, nets.actor(features), noise[1], alpha)
        actor_loss = -(weight * value).mean()
        nets.step("actor", actor_loss, c["actor_lr"])
        yield

        entropy = (weight * entropy).mean().detach()
        if learn_alpha:
            alpha_loss = nets.temperature().squeeze() * (entropy - c["target_entropy"])
            nets.step("temperature", alpha_loss, c["alpha_lr"])
            yield
        for name in ("trunk", "critic"):
            nets.polyak(name, c["tau"])
        metrics = {
            "loss/critic": critic_loss,
            "loss/actor": actor_loss,
            "policy/entropy": entropy,
            "policy/alpha": torch.as_tensor(alpha, dtype=torch.float32, device=entropy.device).squeeze(),
            "policy/q": q_NTB.mean(),
            "loss/total": critic_loss + actor_loss,
        }
        return metrics, {"error": error_NTB.detach().abs().mean(0) * (weight > 0)}

    def soft_value(
        self, critic: Critics, features: Tensor, params: Tensor, noise: Tensor | None, alpha: Scalar
    ) -> tuple[Tensor, Tensor]:
        """(V, entropy) [T, B]: E[min Q(s, a) - alpha log pi(a|s)], exact for discrete actions, else by one sample."""
        if noise is None:
            log_pi = params.log_softmax(-1)
            pi = log_pi.exp()
            q = critic(features).amin(0)
            return (pi * (q - alpha * log_pi)).sum(-1), -(pi * log_pi).sum(-1)
        assert isinstance(self.distribution, SquashedGaussian)
        u = self.distribution.reparametrized(params, noise)
        log_pi = self.distribution.log_prob(params, u)
        q = critic(features, u.tanh().flatten(2)).squeeze(-1).amin(0)
        return q - alpha * log_pi, -log_pi


def target_entropy(cfg: SACConfig, distribution: Distribution) -> float:
    """The entropy a learned temperature aims at."""
    if cfg.target_entropy != "auto":
        return cfg.target_entropy
    if isinstance(distribution, SquashedGaussian):
        return -float(distribution.size)
    return 0.3 * math.log(distribution.param_dim)
