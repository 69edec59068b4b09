"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) with any encoder and memory core.

Reading order: PPOConfig -> collect -> targets -> update_controller -> loss.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from ludus.acting.actors import make_actor
from ludus.acting.behaviour import Behaviour
from ludus.acting.strategies import SampleClipped
from ludus.algorithms import Algorithm, AlgorithmConfig, Context, Hook, PhaseContext
from ludus.config.schedule import NonNegativeSchedule, PositiveSchedule, UnitSchedule, constant
from ludus.data.rollout import Rollout, minibatches
from ludus.errors import ConfigError
from ludus.learning.learner import Batch, Learner
from ludus.learning.optimizer import OptimizerConfig
from ludus.math.losses import clipped_surrogate, clipped_value_loss, normalized, weighted_mean
from ludus.math.returns import gae
from ludus.networks.policy import Policy
from ludus.registry import ALGORITHMS
from ludus.types import ActResult, Array, Report, Stateful, Tree, to_device


class PPOConfig(AlgorithmConfig):
    """Proximal policy optimisation."""

    fixed = frozenset({"optimizer", "max_grad_norm"})

    rollout_steps: PositiveInt = 128
    """Steps per environment between updates."""
    epochs: PositiveInt = 4
    """Passes over each rollout."""
    batch_size: float = Field(default=0.25, gt=0)
    """Steps per minibatch, or a fraction of the rollout up to 1; must divide the rollout. With a memory core whole
    sequences are taken, at least one: there are never more minibatches than environments."""
    accumulate: PositiveInt = 1
    """Minibatches whose gradients are added up for one step: a `batch_size` so many times as large, in less memory."""
    lr: PositiveSchedule = constant(3e-4)
    """Learning rate."""
    memory_lr: PositiveSchedule | None = None
    """The same for the memory core's parameters; none: `lr`. Without a memory core it is for nothing."""
    gamma: UnitSchedule = constant(0.99)
    """Discount."""
    gae_lambda: UnitSchedule = constant(0.95)
    """Trade-off between bias and variance of the advantages."""
    clip: PositiveSchedule = constant(0.2)
    """How far the ratio may move before its gradient is cut."""
    clip_value: PositiveSchedule | None = None
    """The same for the value, in its own units; none leaves it free."""
    entropy_coef: NonNegativeSchedule = constant(0.0)
    """Weight of the entropy bonus."""
    value_coef: NonNegativeSchedule = constant(0.5)
    """Weight of the value loss."""
    max_grad_norm: float | None = Field(default=0.5, gt=0)
    """Longest gradient; none does not clip."""
    target_kl: float | None = Field(default=None, gt=0)
    """Skip the remaining epochs of this rollout once the divergence exceeds it."""
    normalize_advantage: bool = True
    """Zero mean and unit deviation per minibatch."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer."""

    def steps_per_batch(self, rollout_size: int) -> int:
        """`batch_size` in steps."""
        return max(1, int(self.batch_size * rollout_size)) if self.batch_size <= 1 else int(self.batch_size)

    def minibatches(self, rollout_size: int) -> int:
        """Minibatches of one pass; what is normalised has at least two steps, also where a rollout is cut short."""
        wished = rollout_size // (self.steps_per_batch(rollout_size) * self.accumulate)
        return max(1, min(wished, rollout_size // 2) if self.normalize_advantage else wished)

    def planned_updates(self, env_steps: int, num_envs: int) -> int:
        size = self.rollout_steps * num_envs
        return env_steps // size * self.epochs * self.minibatches(size)

    def full_batch(self, num_envs: int) -> int:
        return self.steps_per_batch(self.rollout_steps * num_envs) if self.accumulate == 1 else 0

    def check(self, num_envs: int) -> None:
        size = self.rollout_steps * num_envs
        batch = self.steps_per_batch(size)
        if batch > size or size % batch or (self.batch_size > 1 and self.batch_size % 1):
            problem = (
                f"{self.batch_size:g} does not divide the rollout of {num_envs} x {self.rollout_steps} = {size} steps"
            )
            raise ConfigError("algorithm.batch_size", problem, "use a divisor, or a fraction such as 0.25")
        if self.normalize_advantage and batch * self.accumulate == 1:
            raise ConfigError("algorithm.batch_size", "one step per minibatch cannot be normalised", "use at least 2")
        if size // batch % self.accumulate:
            problem = f"{self.accumulate} does not divide the {size // batch} minibatches of a rollout"
            raise ConfigError("algorithm.accumulate", problem, "use a divisor, or a smaller batch_size")


@ALGORITHMS.register("ppo")
class PPO(Algorithm):
    """Clipped surrogate objective with generalised advantage estimation."""

    Config = PPOConfig

    def __init__(self, cfg: PPOConfig, context: Context) -> None:
        cfg.check(context.num_envs)
        self.collector, self.rng, self.device = context.collector, context.rng, context.device
        self.policy = Policy(context.network, context.spaces, precision=context.precision).to(context.device)
        self.distribution = self.policy.distribution
        self.learner = Learner(
            self.policy,
            self.loss,
            cfg.optimizer,
            max_grad_norm=cfg.max_grad_norm,
            parts=self.policy.parts,
            rates={"memory_lr": self.policy.memory_names},
            compiler=None if self.policy.recurrent or self.policy.trunk.heavy else context.compiler,
        )
        self.behaviour = Behaviour(
            make_actor(self.policy.trunk, self.policy.heads),
            SampleClipped(self.distribution, context.spaces.action, keep=self.policy.trunk.heavy),
            learner=self.learner,
            rng=context.rng,
            evaluation_rng=context.evaluation_rng,
        )
        self.columns: dict[str, Tensor] | None = None
        self.start_state: Tree = ()

    def hooks(self) -> dict[str, Hook]:
        return {"collect": self.collect, "update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        return {"learner": self.learner}

    def initial_state(self, batch: int) -> Tree:
        return self.behaviour.initial_state(batch)

    def act(self, obs: Array, state: Tree, first: Array, *, deterministic: bool) -> ActResult:
        return self.behaviour.evaluate(obs, state, first, deterministic=deterministic)

    # ---- collect -------------------------------------------------------------------------------

    def collect(self, now: PhaseContext) -> Report:
        """One rollout with the current policy, and the targets to learn from it."""
        assert self.collector is not None
        steps = min(now.cfg.rollout_steps, now.remaining_steps // self.collector.num_envs)
        rollout = self.collector.collect(self.behaviour, steps)
        self.columns, explained = self.targets(rollout, now)
        self.start_state = to_device(rollout.state, self.device)
        return Report(
            env_steps=rollout.env_steps, metrics={**self.collector.statistics(), "explained_variance": explained}
        )

    @torch.no_grad()
    def targets(self, rollout: Rollout, now: PhaseContext) -> tuple[dict[str, Tensor], float]:
        """Log-probabilities, values, advantages and value targets [T, B] of a fresh rollout.

        One forward pass over all T + 1 rows instead of one per step: by the contract of memory cores it is the same.
        Where passes are dear, those of acting serve, and only the last row is left.
        """
        steps, _ = rollout.shape
        obs, first = self.policy.trunk.encoder.arrange(self._tensor(rollout.obs)), self._tensor(rollout.first)
        params_TBP, value_TB = self._outputs(rollout, obs, first)
        values = value_TB.cpu().numpy()
        action = self._tensor(rollout.action)
        log_prob = self.distribution.log_prob(params_TBP[:steps], action)

        next_value = values[1:].copy()
        if rollout.finals is not None:  # a truncated episode goes on in its true final observation, not in the next one
            next_value[rollout.finals.t, rollout.finals.b] = self._final_values(rollout.finals)
        reward, terminated = rollout.credited(values[:steps])
        advantage, target = gae(
            reward,
            values[:steps],
            next_value,
            terminated,
            rollout.done,
            now.at(now.cfg.gamma),
            now.at(now.cfg.gae_lambda),
        )
        columns = {
            "obs": obs[:steps],
            "action": action,
            "first": first[:steps],
            "log_prob": log_prob,
            "value": value_TB[:steps],
            "advantage": self._tensor(advantage),
            "target": self._tensor(target),
            **({} if rollout.weight is None else {"weight": self._tensor(rollout.weight)}),
        }
        return columns, float(1 - advantage.var() / (target.var() + 1e-8))

    def _outputs(self, rollout: Rollout, obs: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution parameters of at least T rows, values of T + 1."""
        if not rollout.extras:
            params_TBP, value_TB, _ = self.policy(obs, to_device(rollout.state, self.device), first)
            return params_TBP, value_TB
        last = self.policy(obs[-1:], to_device(rollout.last_state, self.device), first[-1:])[1]
        params_TBP, value_TB = (self._tensor(rollout.extras[name]) for name in ("params", "value"))
        return params_TBP, torch.cat([value_TB, last])

    def _final_values(self, finals: Any) -> Array:
        first = torch.zeros(1, len(finals.t), dtype=torch.bool, device=self.device)
        obs, state = self._tensor(finals.obs).unsqueeze(0), to_device(finals.state, self.device)
        return self.policy(obs, state, first)[1][0].cpu().numpy()

    def _tensor(self, array: Array) -> Tensor:
        return torch.as_tensor(array, device=self.device)

    # ---- update --------------------------------------------------------------------------------

    def update_controller(self, now: PhaseContext) -> Report:
        """`epochs` passes of minibatch updates over the newest rollout."""
        if self.columns is None:
            return Report()
        cfg: PPOConfig = now.cfg
        numbers = {
            "lr": now.at(cfg.lr),
            "clip": now.at(cfg.clip),
            "clip_value": now.at(cfg.clip_value) if cfg.clip_value else 0.0,
            "value_coef": now.at(cfg.value_coef),
            "entropy_coef": now.at(cfg.entropy_coef),
            **({"memory_lr": now.at(cfg.memory_lr)} if cfg.memory_lr else {}),
        }
        flags = {
            "clip_value": cfg.clip_value is not None,
            "normalize": cfg.normalize_advantage and cfg.accumulate == 1,
            "bonus": not (cfg.entropy_coef.constant and cfg.entropy_coef.start == 0),
        }
        size = self.columns["advantage"].numel()
        count = cfg.minibatches(size)
        updates, epochs = 0, 0
        for _ in range(cfg.epochs):
            for batch in minibatches(self.columns, self.start_state, count, self.rng, sequences=self.policy.recurrent):
                self.learner.step(self._normalized(batch, cfg), numbers, accumulate=cfg.accumulate, **flags)
                updates += 1
            epochs += 1
            if cfg.target_kl is not None and self.learner.last("policy/kl") > cfg.target_kl:
                break
        self.columns = None  # each rollout is learned from once
        metrics = {**self.learner.metrics(), "policy_lr": numbers["lr"], "opt/epochs": float(epochs)}
        return Report(updates=updates, metrics=metrics)

    @staticmethod
    def _normalized(batch: Batch, cfg: PPOConfig) -> Batch:
        """Parts of a batch cannot know its mean: advantages that are accumulated over are normalised before."""
        if cfg.accumulate == 1 or not cfg.normalize_advantage:
            return batch
        return {**batch, "advantage": normalized(batch["advantage"], batch.get("weight"))}

    def loss(
        self, policy: Any, batch: Batch, c: Any, *, clip_value: bool, normalize: bool, bonus: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Clipped surrogate + value error - entropy bonus (equation 9); a `weight` leaves broken steps out."""
        params, value, _ = policy(batch["obs"], batch["state"], batch["first"])
        log_ratio = self.distribution.log_prob(params, batch["action"]) - batch["log_prob"]
        ratio, weight = log_ratio.exp(), batch.get("weight")

        advantage = batch["advantage"]
        if normalize:
            advantage = normalized(advantage, weight)
        policy_loss = clipped_surrogate(ratio, advantage if weight is None else weight * advantage, c["clip"])

        if clip_value:
            value_loss = 0.5 * clipped_value_loss(value, batch["value"], batch["target"], c["clip_value"], weight)
        else:
            value_loss = 0.5 * weighted_mean((value - batch["target"]).square(), weight)

        entropies = self.distribution.entropy(params if bonus else params.detach())  # only a metric without a bonus
        entropy = weighted_mean(entropies, weight)
        loss = policy_loss + c["value_coef"] * value_loss
        if bonus:
            loss = loss - c["entropy_coef"] * entropy
        with torch.no_grad():
            # k3 of joschu.net/blog/kl-approx.html: unbiased, never negative
            kl = weighted_mean(ratio - 1 - log_ratio, weight)
            # what k1 and k3 disagree by; 0 when the samples are the policy's own
            gap = (weighted_mean(ratio, weight) - 1).abs()
            clipped = weighted_mean(((ratio - 1).abs() > c["clip"]).float(), weight)
            moved = (value - batch["value"]).abs()
            held = weighted_mean((moved > c["clip_value"]).float(), weight) if clip_value else None
        return loss, {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "policy/entropy": entropy,
            "policy/kl": kl,
            "policy/kl_gap": gap,
            "policy/clip_fraction": clipped,
            **({"policy/value_clip_fraction": held} if held is not None else {}),
        }
