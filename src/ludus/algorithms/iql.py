"""Implicit Q-learning (Kostrikov et al. 2022, arXiv:2110.06169): judges no actions but those of its data set.

Reading order: IQLConfig -> update_controller -> update.
V(s) follows an upper expectile of Q(s, a) over the actions of the data set, Q(s, a) follows r + discount V(s'), and the
policy imitates the actions, the better ones more. Bounded and discrete actions. With a memory core batches are
sequences that begin with an empty memory. The critics train the trunk (encoder and memory); value and actor read it.

Shapes: T time, B batch, N critics, A actions.
"""

from __future__ import annotations

import gymnasium as gym
import torch
from pydantic import Field, PositiveInt
from torch import nn

from ludus.acting.behaviour import Behaviour
from ludus.acting.exploration import SampleScaled, UniformActions, check_bounded, unit_space
from ludus.acting.numpy_actor import make_actor
from ludus.algorithms import Context, PhaseContext
from ludus.algorithms._replay import ReplayAlgorithm, ReplayBuffers, ReplayConfig
from ludus.config.schedule import NonNegativeSchedule, PositiveSchedule, UnitSchedule, constant
from ludus.learning.learner import Batch, Group, Learner, Networks, Scalars
from ludus.learning.several_steps import Steps
from ludus.math.distributions import distribution_for
from ludus.math.values import expectile_loss
from ludus.networks.critics import WIDE, Critics, features_of
from ludus.networks.policy import ActorHead, DenseHead, Trunk
from ludus.registry import ALGORITHMS
from ludus.types import Report


class IQLConfig(ReplayConfig):
    """Implicit Q-learning."""

    fixed = ReplayConfig.fixed | {"critics", "sequence_length"}
    search = {
        "lr": "loguniform(1e-4,3e-3)",
        "gamma": "0.95,0.98,0.99,0.995",
        "batch_size": "64,128,256",
        "expectile": "0.5,0.7,0.8,0.9",
        "beta": "1.0,3.0,10.0",
    }

    actor_lr: PositiveSchedule | None = None
    """Learning rate of the actor; none: `lr`."""
    expectile: float = Field(default=0.7, gt=0, lt=1)
    """Which expectile of Q over the actions of the data set is the value: 0.5 is their mean, near 1 the best one."""
    beta: NonNegativeSchedule = constant(3.0)
    """How much more an action counts for the policy the better it is; 0 is behaviour cloning."""
    max_weight: float = Field(default=100.0, gt=0, le=1e30)
    """Most that one action counts."""
    tau: UnitSchedule = constant(0.005)
    """How far the target critics move towards the critics at each update."""
    critics: PositiveInt = 2
    """Critics; the smallest of their values counts."""


@ALGORITHMS.register("iql")
class IQL(ReplayAlgorithm):
    """Expectile regression of values, and advantage-weighted regression of the policy."""

    Config = IQLConfig
    buffers = {"demos": {"type": "minari"}}

    def __init__(self, cfg: IQLConfig, context: Context) -> None:
        space = context.spaces.action
        check_bounded("iql", space, discrete=True)
        self.collector, self.default_cycle, self.epoch_steps = context.collector, cfg.cycle, cfg.epoch_steps
        self.discrete = isinstance(space, gym.spaces.Discrete)
        self.distribution = distribution_for(space)
        trunk = Trunk(context.network, context.spaces.observation, context.precision)
        outputs = self.distribution.param_dim if self.discrete else self.distribution.param_dim // 2
        shape = {"outputs": outputs} if self.discrete else {"action_dim": outputs}
        networks: dict[str, nn.Module] = {
            "trunk": trunk,
            "critic": Critics(context.network.critic, trunk, cfg.critics, **shape),
            "value": DenseHead(context.network.critic, trunk, 1, default=WIDE),
            "actor": ActorHead(context.network.actor, trunk, outputs, default=WIDE, log_std=not self.discrete),
        }
        groups = {"critic": ("trunk", "critic"), "value": ("value",), "actor": ("actor",)}
        self.learner = Learner(
            {name: part.to(context.device) for name, part in networks.items()},
            {name: Group(members, cfg.optimizer, cfg.max_grad_norm) for name, members in groups.items()},
            targets=["trunk", "critic"],
            generator=context.rng,
            compiler=None if trunk.recurrent else context.compiler,
        )
        self.behaviour = Behaviour(
            make_actor(trunk, {name: networks[name] for name in ("actor", "value")}, live=True),
            SampleScaled(self.distribution, space),
            blind=UniformActions(unit_space(space)),
            rng=context.rng,
            evaluation_rng=context.evaluation_rng,
        )
        self.replay = ReplayBuffers(context, trunk, self.learner, self.behaviour, stored=False, default="demos")

    def update_controller(self, now: PhaseContext) -> Report:
        """One gradient step on value, actor and critics."""
        cfg: IQLConfig = now.cfg
        scalars = {name: now.at(getattr(cfg, name)) for name in ("lr", "beta", "tau")}
        scalars["actor_lr"] = now.at(cfg.actor_lr or cfg.lr)
        return self.replay.learn(self.update, now, scalars, expectile=cfg.expectile, most=cfg.max_weight)

    def update(self, nets: Networks, batch: Batch, c: Scalars, *, expectile: float, most: float, burn_in: int) -> Steps:
        """Value towards the expectile (equation 5), actor by advantages (7), critics towards the value (6)."""
        features, following = features_of(nets.trunk, batch, burn_in)
        weight, action, seen = batch["weight"], batch["action"], features.detach()
        with torch.no_grad():
            target_q = nets.target_critic.judge(features_of(nets.target_trunk, batch, burn_in)[0], action).amin(0)
        value_loss = (weight * expectile_loss(target_q - nets.value(seen).squeeze(-1), expectile)).mean()
        nets.step("value", value_loss, c["lr"])
        yield

        with torch.no_grad():
            advantage = target_q - nets.value(seen).squeeze(-1)
            counts = (c["beta"] * advantage).exp().clamp(max=most)
            target_TB = batch["reward"] + batch["discount"] * nets.value(following.detach()).squeeze(-1)
        log_pi = self.distribution.log_prob(nets.actor(seen), action)
        actor_loss = -(weight * counts * log_pi).mean()
        nets.step("actor", actor_loss, c["actor_lr"])
        yield

        error_NTB = nets.critic.judge(features, action) - target_TB
        critic_loss = (weight * error_NTB.square()).mean((1, 2)).sum()
        nets.step("critic", critic_loss, c["lr"])
        yield
        for name in ("trunk", "critic"):
            nets.polyak(name, c["tau"])
        metrics = {
            "loss/critic": critic_loss,
            "loss/value": value_loss,
            "loss/actor": actor_loss,
            "policy/advantage": advantage.mean(),
            "policy/q": target_q.mean(),
            "loss/total": critic_loss + value_loss + actor_loss,
        }
        return metrics, {"error": error_NTB.detach().abs().mean(0) * (weight > 0)}
