"""REINFORCE (Williams 1992): Monte Carlo policy gradient, no value network.

Reading order: ReinforceConfig -> collect -> targets -> update_controller -> loss.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from ludus.acting.actors import make_actor
from ludus.acting.behaviour import Behaviour
from ludus.acting.strategies import SampleClipped
from ludus.algorithms import Algorithm, AlgorithmConfig, Context, Hook, PhaseContext
from ludus.config.schedule import NonNegativeSchedule, PositiveSchedule, UnitSchedule, constant
from ludus.data.rollout import Rollout
from ludus.errors import ConfigError
from ludus.learning.learner import Batch, Learner
from ludus.learning.optimizer import OptimizerConfig
from ludus.math.returns import episode_returns, reward_to_go
from ludus.networks.policy import Policy
from ludus.registry import ALGORITHMS
from ludus.types import ActResult, Array, Report, Stateful, Tree, to_device


class ReinforceConfig(AlgorithmConfig):
    """Monte Carlo policy gradient."""

    fixed = frozenset({"optimizer", "max_grad_norm"})

    rollout_steps: PositiveInt = 512
    """Steps per environment between updates; should hold several episodes, since one that is still open at the end
    has no return yet and is left out."""
    lr: PositiveSchedule = constant(1e-3)
    """Learning rate."""
    memory_lr: PositiveSchedule | None = None
    """The same for the memory core's parameters; none: `lr`. Without a memory core it is for nothing."""
    gamma: UnitSchedule = constant(0.99)
    """Discount."""
    returns: Literal["mc:rtg", "mc:episode"] = "mc:rtg"
    """Reward from each step on, or of the whole episode at each of its steps."""
    targets: Literal["returns", "advantages"] = "returns"
    """What multiplies the log-probability: the return, or the return minus the batch's mean return as a baseline."""
    normalize: bool = False
    """Divide the targets by their deviation."""
    entropy_coef: NonNegativeSchedule = constant(0.0)
    """Weight of the entropy bonus."""
    max_grad_norm: float | None = Field(default=0.5, gt=0)
    """Longest gradient; none does not clip."""
    accumulate: PositiveInt = 1
    """Parts that the environments are cut into; their gradients are added up, so that fewer steps are in memory."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer."""

    def planned_updates(self, env_steps: int, num_envs: int) -> int:
        return env_steps // (self.rollout_steps * num_envs)

    def check(self, num_envs: int) -> None:
        if self.accumulate > num_envs:
            problem = f"{num_envs} environments cannot be cut into {self.accumulate} parts"
            raise ConfigError("algorithm.accumulate", problem, "use at most environment.num_envs")


@ALGORITHMS.register("reinforce")
class Reinforce(Algorithm):
    """One gradient step per rollout along sum log pi(a|s) G."""

    Config = ReinforceConfig

    def __init__(self, cfg: ReinforceConfig, context: Context) -> None:
        cfg.check(context.num_envs)
        self.collector, self.device = context.collector, context.device
        self.policy = Policy(context.network, context.spaces, value=False, precision=context.precision).to(
            context.device
        )
        self.distribution = self.policy.distribution
        self.learner = Learner(
            self.policy,
            self.loss,
            cfg.optimizer,
            max_grad_norm=cfg.max_grad_norm,
            parts=self.policy.parts,
            rates={"memory_lr": self.policy.memory_names},
        )
        self.behaviour = Behaviour(
            make_actor(self.policy.trunk, self.policy.heads),
            SampleClipped(self.distribution, context.spaces.action),
            learner=self.learner,
            rng=context.rng,
            evaluation_rng=context.evaluation_rng,
        )
        self.batch: Batch | None = None

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
        """One rollout with the current policy."""
        assert self.collector is not None
        steps = min(now.cfg.rollout_steps, now.remaining_steps // self.collector.num_envs)
        rollout = self.collector.collect(self.behaviour, steps)
        target, weight = self.targets(rollout, now)
        self.batch = {
            "obs": self._tensor(rollout.obs[:steps]),
            "action": self._tensor(rollout.action),
            "first": self._tensor(rollout.first[:steps]),
            "target": self._tensor(target),
            "weight": self._tensor(
                weight * (weight.size / max(weight.sum(), 1.0))
            ),  # a mean over all, of those that count
            "state": to_device(rollout.state, self.device),
        }
        return Report(env_steps=rollout.env_steps, metrics=self.collector.statistics())

    def targets(self, rollout: Rollout, now: PhaseContext) -> tuple[Array, Array]:
        """(target, weight) [T, B]; steps whose episode is still open at the end, or broken, weigh nothing."""
        cfg: ReinforceConfig = now.cfg
        compute = reward_to_go if cfg.returns == "mc:rtg" else episode_returns
        nothing = np.zeros_like(rollout.reward)  # no value function: what lies beyond an end counts as zero
        returns = compute(rollout.reward, nothing, rollout.terminated, rollout.done, now.at(cfg.gamma))
        weight = np.flip(np.logical_or.accumulate(np.flip(rollout.done, 0), 0), 0).astype(np.float32)
        if rollout.broken is not None:  # such an episode did not end either: it was lost
            lost = episode_returns(rollout.broken.astype(np.float32), nothing, rollout.terminated, rollout.done, 1.0)
            weight = weight * (lost == 0)
        count = max(float(weight.sum()), 1.0)
        mean = float((returns * weight).sum()) / count
        deviation = float(np.sqrt((np.square(returns - mean) * weight).sum() / count)) + 1e-8
        target = returns - mean if cfg.targets == "advantages" else returns
        return (target / deviation if cfg.normalize else target).astype(np.float32), weight

    def _tensor(self, array: Array) -> Tensor:
        return torch.as_tensor(array, device=self.device)

    # ---- update --------------------------------------------------------------------------------

    def update_controller(self, now: PhaseContext) -> Report:
        """One step along the policy gradient of the newest rollout; none if no episode ended in it."""
        if self.batch is None or not bool(self.batch["weight"].any()):
            return Report()
        cfg: ReinforceConfig = now.cfg
        numbers = {"lr": now.at(cfg.lr), "entropy_coef": now.at(cfg.entropy_coef)}
        if cfg.memory_lr:
            numbers["memory_lr"] = now.at(cfg.memory_lr)
        self.learner.step(self.batch, numbers, accumulate=cfg.accumulate)
        self.batch = None  # the gradient is on-policy: each rollout is used once
        return Report(updates=1, metrics={**self.learner.metrics(), "policy_lr": numbers["lr"]})

    def loss(self, policy: Any, batch: Batch, c: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """-E[log pi(a|s) target] - entropy bonus, over the steps that count."""
        params, _, _ = policy(batch["obs"], batch["state"], batch["first"])
        weight = batch["weight"]
        policy_loss = -(weight * batch["target"] * self.distribution.log_prob(params, batch["action"])).mean()
        entropy = (weight * self.distribution.entropy(params)).mean()
        loss = policy_loss - c["entropy_coef"] * entropy
        return loss, {"loss/policy": policy_loss, "policy/entropy": entropy}
