"""REINFORCE (Williams 1992): Monte Carlo policy gradient, no value network.

Reading order: ReinforceConfig -> collect -> targets -> update_controller -> update -> loss.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt
from torch import Tensor

from ludus.algorithms import Algorithm, Context, Hook, PhaseContext
from ludus.algorithms._on_policy import build_policy, scalars_of
from ludus.algorithms._on_policy_config import OnPolicyConfig
from ludus.config.schedule import PositiveSchedule, constant
from ludus.data.broken_rows import in_finished_episodes
from ludus.data.rollout import Rollout
from ludus.learning.learner import Batch, Metrics, Networks, Scalars
from ludus.math.values import episode_returns, reward_to_go, weighted_moments
from ludus.networks.policy import PolicyNetwork
from ludus.registry import ALGORITHMS
from ludus.types import Array, Report, Stateful, to_device, tree_index


class ReinforceConfig(OnPolicyConfig):
    """Monte Carlo policy gradient."""

    search = {**OnPolicyConfig.search, "rollout_steps": "256,512,1024"}

    rollout_steps: PositiveInt = 512
    """Steps per environment between updates. Episodes that are still open at the end of a rollout are left out."""
    lr: PositiveSchedule = constant(1e-3)
    """Learning rate."""
    returns: Literal["mc:rtg", "mc:episode"] = "mc:rtg"
    """Reward from each step on, or of the whole episode at each of its steps."""
    targets: Literal["returns", "advantages"] = "returns"
    """What multiplies the log-probability: the return, or the return minus the batch's mean return as a baseline."""
    normalize: bool = False
    """Divide the targets by their deviation."""


@ALGORITHMS.register("reinforce")
class Reinforce(Algorithm):
    """One gradient step per rollout along sum log pi(a|s) G."""

    Config = ReinforceConfig
    data_parallel = True
    networks = Algorithm.networks - {"critic"}

    def __init__(self, cfg: ReinforceConfig, context: Context) -> None:
        self.collector, self.device = context.collector, context.device
        self.policy, self.learner, self.behaviour = build_policy(cfg, context, value=False)
        self.experience: Batch | None = None

    def hooks(self) -> dict[str, Hook]:
        """`collect`, then `update_controller`."""
        return {"collect": self.collect, "update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        """Weights and moments."""
        return {"learner": self.learner}

    def collect(self, now: PhaseContext) -> Report:
        """One rollout of the current policy."""
        rollout = self.rollout(now, now.cfg.rollout_steps)
        target, weight = self.targets(rollout, now)
        (every_weight,) = self.learner.ranks.whole_arrays(weight)
        scale = every_weight.size / max(every_weight.sum(), 1.0)  # a mean over all steps is one over these
        columns = {"obs": tree_index(rollout.obs, slice(-1)), "action": rollout.action, "first": rollout.first[:-1]}
        columns |= {"target": target, "weight": weight * scale, "state": rollout.state}
        self.experience = None
        if every_weight.any():
            self.experience = {name: to_device(column, self.device) for name, column in columns.items()}
        return Report(env_steps=rollout.env_steps, metrics=self.statistics())

    def targets(self, rollout: Rollout, now: PhaseContext) -> tuple[Array, Array]:
        """(target, weight) [T, B]; the weight is 0 for steps of episodes that are open at the end, or broken."""
        cfg: ReinforceConfig = now.cfg
        compute = reward_to_go if cfg.returns == "mc:rtg" else episode_returns
        zeros = np.zeros_like(rollout.reward)  # the value beyond an end: there is no value function
        returns = compute(rollout.reward, zeros, rollout.terminated, rollout.done, now.at(cfg.gamma))
        weight = in_finished_episodes(rollout)
        mean, deviation = weighted_moments(*self.learner.ranks.whole_arrays(returns, weight))
        target = returns - mean if cfg.targets == "advantages" else returns
        return (target / (deviation + 1e-8) if cfg.normalize else target).astype(np.float32), weight

    def update_controller(self, now: PhaseContext) -> Report:
        """One step along the policy gradient of the newest rollout; none if no episode ended in it."""
        if self.experience is None:
            return Report()
        batch, self.experience = self.experience, None  # the gradient is on-policy: each rollout is used once
        scalars = scalars_of(now, "entropy_coef")
        self.learner.update(self.update, batch, scalars, accumulate=now.cfg.accumulate)
        return Report(updates=1, metrics={**self.learner.metrics(), "policy_lr": scalars["lr"]})

    def update(self, nets: Networks, batch: Batch, c: Scalars) -> Metrics:
        """One optimizer step."""
        loss, metrics = self.loss(nets.policy, batch, c)
        nets.step("policy", loss, c["lr"], memory=c.get("memory_lr"))
        return {**metrics, "loss/total": loss}

    def loss(self, policy: PolicyNetwork, batch: Batch, c: Scalars) -> tuple[Tensor, Metrics]:
        """-E[log pi(a|s) target] - entropy bonus, over the steps that count."""
        params, _, _ = policy(batch["obs"], batch["state"], batch["first"])
        log_prob = policy.distribution.log_prob(params, batch["action"])
        policy_loss = -(batch["weight"] * batch["target"] * log_prob).mean()
        entropy = (batch["weight"] * policy.distribution.entropy(params)).mean()
        return policy_loss - c["entropy_coef"] * entropy, {"loss/policy": policy_loss, "policy/entropy": entropy}
