"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) with any encoder and memory core.

Reading order: PPOConfig -> collect -> update_controller -> update -> loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.algorithms import Algorithm, Context, Hook, PhaseContext
from ludus.algorithms._on_policy import Experience, advantages, build_policy, scalars_of
from ludus.algorithms._on_policy_config import MinibatchConfig
from ludus.config.schedule import PositiveSchedule
from ludus.data.rollout import minibatches, single_steps
from ludus.learning.learner import Batch, Metrics, Networks, Scalars
from ludus.math.policy_gradient import (
    clipped_surrogate,
    clipped_value_loss,
    explained_variance,
    normalized,
    weighted_mean,
)
from ludus.networks.policy import PolicyNetwork
from ludus.registry import ALGORITHMS
from ludus.types import Report, Stateful


class PPOConfig(MinibatchConfig):
    """Proximal policy optimisation."""

    clip_value: PositiveSchedule | None = None
    """How far the value may move from the old one before its gradient is cut; none: it is not cut."""


@ALGORITHMS.register("ppo")
class PPO(Algorithm):
    """Clipped surrogate objective with generalised advantage estimation."""

    Config = PPOConfig
    data_parallel = True

    def __init__(self, cfg: PPOConfig, context: Context) -> None:
        self.collector, self.rng = context.collector, context.rng
        self.policy, self.learner, self.behaviour = build_policy(cfg, context, compiled=True)
        self.experience: Experience | None = None

    def hooks(self) -> dict[str, Hook]:
        """`collect`, then `update_controller`."""
        return {"collect": self.collect, "update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        """Weights and moments."""
        return {"learner": self.learner}

    # ---- collect -------------------------------------------------------------------------------

    def collect(self, now: PhaseContext) -> Report:
        """One rollout of the current policy, and the advantages to learn from it."""
        rollout = self.rollout(now, now.cfg.rollout_steps)
        self.experience = advantages(self.policy, rollout, now.at(now.cfg.gamma), now.at(now.cfg.gae_lambda))
        columns = self.experience.columns
        explained = explained_variance(columns["advantage"].cpu().numpy(), columns["target"].cpu().numpy())
        return Report(env_steps=rollout.env_steps, metrics={**self.statistics(), "explained_variance": explained})

    # ---- update --------------------------------------------------------------------------------

    def update_controller(self, now: PhaseContext) -> Report:
        """`epochs` passes of minibatch updates over the newest rollout."""
        if self.experience is None:
            return Report()
        cfg: PPOConfig = now.cfg
        (columns, state), self.experience = self.experience, None  # each rollout is learned from once
        scalars = scalars_of(now, "clip", "value_coef", "entropy_coef")
        scalars["clip_value"] = now.at(cfg.clip_value) if cfg.clip_value else 0.0
        static = {
            "clip_value": cfg.clip_value is not None,
            "normalize": cfg.normalize_advantage and cfg.accumulate == 1 and self.learner.ranks.count == 1,
            "bonus": not (cfg.entropy_coef.constant and cfg.entropy_coef.start == 0),
        }
        size, epochs, updates = columns["advantage"].numel(), 0, 0
        count = cfg.minibatches(size, size)
        if not self.policy.recurrent:
            columns = single_steps(columns)  # once instead of in every epoch
        for _ in range(cfg.epochs):
            for batch in minibatches(columns, state, count, self.rng, sequences=self.policy.recurrent):
                if cfg.normalize_advantage and not static["normalize"]:  # a part of a batch does not know its mean
                    batch["advantage"] = self.learner.ranks.normalized(batch["advantage"], batch.get("weight"))
                self.learner.update(self.update, batch, scalars, accumulate=cfg.accumulate, **static)
                updates += 1
            epochs += 1
            if cfg.target_kl is not None and self.learner.last("policy/kl") > cfg.target_kl:
                break
        metrics = {**self.learner.metrics(), "policy_lr": scalars["lr"], "opt/epochs": float(epochs)}
        return Report(updates=updates, metrics=metrics)

    def update(
        self, nets: Networks, batch: Batch, c: Scalars, *, clip_value: bool, normalize: bool, bonus: bool
    ) -> Metrics:
        """One optimizer step on a minibatch."""
        loss, metrics = self.loss(nets.policy, batch, c, clip_value=clip_value, normalize=normalize, bonus=bonus)
        nets.step("policy", loss, c["lr"], memory=c.get("memory_lr"))
        return {**metrics, "loss/total": loss}

    def loss(
        self, policy: PolicyNetwork, batch: Batch, c: Scalars, *, clip_value: bool, normalize: bool, bonus: bool
    ) -> tuple[Tensor, Metrics]:
        """Clipped surrogate + value error - entropy bonus (equation 9); a `weight` leaves broken steps out."""
        params, value, _ = policy(batch["obs"], batch["state"], batch["first"])
        log_ratio = policy.distribution.log_prob(params, batch["action"]) - batch["log_prob"]
        ratio, weight = log_ratio.exp(), batch.get("weight")

        advantage = normalized(batch["advantage"], weight) if normalize else batch["advantage"]
        policy_loss = clipped_surrogate(ratio, advantage if weight is None else weight * advantage, c["clip"])
        if clip_value:
            value_loss = 0.5 * clipped_value_loss(value, batch["value"], batch["target"], c["clip_value"], weight)
        else:
            value_loss = 0.5 * weighted_mean((value - batch["target"]).square(), weight)
        entropies = policy.distribution.entropy(params if bonus else params.detach())  # without a bonus only a metric
        entropy = weighted_mean(entropies, weight)
        loss = policy_loss + c["value_coef"] * value_loss
        if bonus:
            loss = loss - c["entropy_coef"] * entropy
        with torch.no_grad():
            metrics = {
                "loss/policy": policy_loss,
                "loss/value": value_loss,
                "policy/entropy": entropy,
                # k3 of joschu.net/blog/kl-approx.html: unbiased, never negative
                "policy/kl": weighted_mean(ratio - 1 - log_ratio, weight),
                # the difference between k1 and k3; 0 when the samples are the policy's own
                "policy/kl_gap": (weighted_mean(ratio, weight) - 1).abs(),
                "policy/clip_fraction": weighted_mean(((ratio - 1).abs() > c["clip"]).float(), weight),
            }
            if clip_value:
                moved = (value - batch["value"]).abs() > c["clip_value"]
                metrics["policy/value_clip_fraction"] = weighted_mean(moved.float(), weight)
        return loss, metrics
