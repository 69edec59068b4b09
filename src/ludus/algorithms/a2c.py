"""Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783), synchronous: one gradient step per rollout.

Reading order: A2CConfig -> collect -> update_controller -> update -> loss.
"""

from __future__ import annotations

from pydantic import PositiveInt
from torch import Tensor

from ludus.algorithms import Algorithm, Context, Hook, PhaseContext
from ludus.algorithms._on_policy import Experience, advantages, build_policy, scalars_of
from ludus.algorithms._on_policy_config import AdvantageConfig
from ludus.config.schedule import PositiveSchedule, constant
from ludus.learning.learner import Batch, Metrics, Networks, Scalars
from ludus.math.policy_gradient import weighted_mean
from ludus.networks.policy import PolicyNetwork
from ludus.registry import ALGORITHMS
from ludus.types import Report, Stateful


class A2CConfig(AdvantageConfig):
    """Advantage actor-critic."""

    fixed = AdvantageConfig.fixed | {"epoch_steps"}

    rollout_steps: PositiveInt = 5
    """Steps per environment between updates."""
    lr: PositiveSchedule = constant(7e-4)
    """Learning rate."""
    epoch_steps: PositiveInt = 1_000
    """Environment steps per epoch: metrics, evaluation and checkpoints come at its end."""


@ALGORITHMS.register("a2c")
class A2C(Algorithm):
    """The policy follows its advantages, the critic the returns."""

    Config = A2CConfig
    data_parallel = True

    def __init__(self, cfg: A2CConfig, context: Context) -> None:
        self.collector, self.epoch_steps = context.collector, cfg.epoch_steps
        self.policy, self.learner, self.behaviour = build_policy(cfg, context)
        self.experience: Experience | None = None

    def hooks(self) -> dict[str, Hook]:
        """`collect`, then `update_controller`."""
        return {"collect": self.collect, "update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        """Weights and moments."""
        return {"learner": self.learner}

    def metrics(self) -> dict[str, float]:
        """Episodes, and means over the updates."""
        return {**self.statistics(), **self.learner.metrics()}

    def collect(self, now: PhaseContext) -> Report:
        """A short rollout of the current policy, and its advantages."""
        rollout = self.rollout(now, now.cfg.rollout_steps)
        self.experience = advantages(self.policy, rollout, now.at(now.cfg.gamma), now.at(now.cfg.gae_lambda))
        return Report(env_steps=rollout.env_steps)

    def update_controller(self, now: PhaseContext) -> Report:
        """One step along the gradient of the newest rollout."""
        if self.experience is None:
            return Report()
        (columns, state), self.experience = self.experience, None  # each rollout is learned from once
        if now.cfg.normalize_advantage:
            columns["advantage"] = self.learner.ranks.normalized(columns["advantage"], columns.get("weight"))
        scalars = scalars_of(now, "value_coef", "entropy_coef")
        self.learner.update(self.update, {**columns, "state": state}, scalars, accumulate=now.cfg.accumulate)
        return Report(updates=1)

    def update(self, nets: Networks, batch: Batch, c: Scalars) -> Metrics:
        """One optimizer step."""
        loss, metrics = self.loss(nets.policy, batch, c)
        nets.step("policy", loss, c["lr"], memory=c.get("memory_lr"))
        return {**metrics, "loss/total": loss}

    def loss(self, policy: PolicyNetwork, batch: Batch, c: Scalars) -> tuple[Tensor, Metrics]:
        """-E[log pi(a|s) A] + value error - entropy bonus; a `weight` leaves broken steps out."""
        params, value, _ = policy(batch["obs"], batch["state"], batch["first"])
        weight, log_prob = batch.get("weight"), policy.distribution.log_prob(params, batch["action"])
        policy_loss = -weighted_mean(batch["advantage"] * log_prob, weight)
        value_loss = 0.5 * weighted_mean((value - batch["target"]).square(), weight)
        entropy = weighted_mean(policy.distribution.entropy(params), weight)
        loss = policy_loss + c["value_coef"] * value_loss - c["entropy_coef"] * entropy
        return loss, {"loss/policy": policy_loss, "loss/value": value_loss, "policy/entropy": entropy}
