"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477), for bounded actions.

Reading order: TD3Config -> collect -> update_controller -> update.
With a memory core batches are sequences, as in sac.py. Shapes: T time, B batch, N critics, A actions.
"""

from __future__ import annotations

import math

import torch
from pydantic import PositiveInt
from torch import nn

from ludus.acting.exploration import AddNoise, Level, check_bounded
from ludus.algorithms import Context, PhaseContext
from ludus.algorithms._replay import ReplayAlgorithm, ReplayBuffers, ReplayConfig, build_actor_critic
from ludus.config.schedule import NonNegativeSchedule, PositiveSchedule, UnitSchedule, constant
from ludus.learning.learner import Batch, Networks, Scalars
from ludus.learning.several_steps import Steps
from ludus.math.policy_gradient import within
from ludus.networks.critics import WIDE, Critics, features_with_target
from ludus.networks.policy import ActorHead, Trunk
from ludus.registry import ALGORITHMS
from ludus.types import Report, Stateful


class TD3Config(ReplayConfig):
    """Twin delayed deep deterministic policy gradient."""

    fixed = ReplayConfig.fixed | {"critics", "sequence_length"}
    search = {**ReplayConfig.search, "tau": "0.005,0.01,0.02", "exploration_noise": "0.05,0.1,0.2"}

    actor_lr: PositiveSchedule | None = None
    """Learning rate of the actor; none: `lr`."""
    tau: UnitSchedule = constant(0.005)
    """How far the targets move towards their networks at each update of the policy."""
    critics: PositiveInt = 2
    """Critics; the smallest of their values is the target."""
    policy_delay: PositiveInt = 2
    """Updates of the critics for one of the policy and the targets."""
    exploration_noise: NonNegativeSchedule = constant(0.1)
    """Deviation of the noise added to actions while collecting; actions reach from -1 to 1."""
    target_noise: NonNegativeSchedule = constant(0.2)
    """Deviation of the noise that smooths the target policy."""
    noise_clip: NonNegativeSchedule = constant(0.5)
    """Largest noise of the target policy."""


@ALGORITHMS.register("td3")
class TD3(ReplayAlgorithm):
    """Deterministic actor-critic: smallest of several critics, smoothed target policy, delayed policy updates."""

    Config = TD3Config
    data_parallel = True
    buffers = {"replay": {"type": "uniform", "size": 1_000_000}}

    def __init__(self, cfg: TD3Config, context: Context) -> None:
        space = context.spaces.action
        check_bounded("td3", space, discrete=False)
        self.collector, self.default_cycle, self.epoch_steps = context.collector, cfg.cycle, cfg.epoch_steps
        self.action_size = math.prod(space.shape or ())
        trunk = Trunk(context.network, context.spaces.observation, context.precision)
        networks: dict[str, nn.Module] = {
            "trunk": trunk,
            "critic": Critics(context.network.critic, trunk, cfg.critics, action_dim=self.action_size),
            "actor": ActorHead(context.network.actor, trunk, self.action_size, default=WIDE),
        }
        self.sigma = Level(context.begun(cfg.exploration_noise))
        strategy = AddNoise(space, self.sigma)
        self.learner, self.behaviour = build_actor_critic(cfg, context, networks, list(networks), strategy)
        self.replay = ReplayBuffers(context, trunk, self.learner, self.behaviour)

    def state(self) -> dict[str, Stateful]:
        """Weights, slow copies and moments; the noise of exploration now."""
        return {"learner": self.learner, "sigma": self.sigma}

    def collect(self, now: PhaseContext) -> Report:
        """A few steps with noise into the buffer; random ones until there is something to learn from."""
        self.sigma.value = now.at(now.cfg.exploration_noise)
        return self.replay.collect(self.rollout, now)

    def update_controller(self, now: PhaseContext) -> Report:
        """One gradient step on the critics and, every `policy_delay` updates, on the actor."""
        cfg = now.cfg
        scalars = {name: now.at(getattr(cfg, name)) for name in ("lr", "tau", "target_noise", "noise_clip")}
        scalars["actor_lr"] = now.at(cfg.actor_lr or cfg.lr)
        due = (self.learner.updates + 1) % cfg.policy_delay == 0
        return self.replay.learn(self.update, now, scalars, policy=due)

    def update(self, nets: Networks, batch: Batch, c: Scalars, *, policy: bool, burn_in: int) -> Steps:
        """Critics towards the smoothed target; the actor, if it is its turn, up the first critic."""
        features, _, following = features_with_target(nets.trunk, nets.target_trunk, batch, burn_in)
        noise, clip = nets.noise((*batch["reward"].shape, self.action_size)), c["noise_clip"]
        with torch.no_grad():
            smooth = within(noise * c["target_noise"], -clip, clip)
            action = (nets.target_actor(following).tanh() + smooth).clamp(-1.0, 1.0)
            next_q = nets.target_critic(following, action).squeeze(-1).amin(0)
            target_TB = batch["reward"] + batch["discount"] * next_q
        q_NTB = nets.critic(features, batch["action"].flatten(2)).squeeze(-1)
        error_NTB = q_NTB - target_TB
        critic_loss = (batch["weight"] * error_NTB.square()).mean((1, 2)).sum()
        nets.step("critic", critic_loss, c["lr"])
        yield
        outputs = {"error": error_NTB.detach().abs().mean(0) * (batch["weight"] > 0)}
        metrics = {"loss/critic": critic_loss, "policy/q": q_NTB.mean()}
        if not policy:
            return {**metrics, "loss/total": critic_loss}, outputs

        features = features.detach()
        q_TB = nets.critic(features, nets.actor(features).tanh())[0].squeeze(-1)
        actor_loss = -(batch["weight"] * q_TB).mean()
        nets.step("actor", actor_loss, c["actor_lr"])
        yield
        for name in ("trunk", "critic", "actor"):
            nets.polyak(name, c["tau"])
        return {**metrics, "loss/actor": actor_loss, "loss/total": critic_loss + actor_loss}, outputs
