"""Behaviour cloning (Pomerleau 1989): the actions of a data set, learned from its observations like any labels.

Reading order: BehaviourCloningConfig -> update_controller -> draw -> update -> loss.
With a memory core batches are sequences that begin with an empty memory; the first `burn_in` steps only fill it. The
network is the one of policy gradients without a critic: `--init-from` continues with PPO where this stops.

Shapes: T time, B batch, P distribution parameters.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from ludus.algorithms import Algorithm, AlgorithmConfig, Context, PhaseContext
from ludus.algorithms._offline import OfflineAlgorithm
from ludus.algorithms._on_policy import build_policy
from ludus.config.schedule import PositiveSchedule, constant
from ludus.data.buffers.batches import check_length
from ludus.data.buffers.sampling import Buffer, Sample, tensors
from ludus.errors import ConfigError
from ludus.learning.learner import Batch, Metrics, Networks, Scalars
from ludus.learning.optimizer import OptimizerConfig
from ludus.math.policy_gradient import weighted_mean
from ludus.networks.policy import PolicyNetwork
from ludus.registry import ALGORITHMS
from ludus.types import Report, to_device, tree_index

VALIDATED = 4_096
"""Most steps that a validation loss is taken over."""


class BehaviourCloningConfig(AlgorithmConfig):
    """Behaviour cloning."""

    fixed = frozenset({"optimizer", "max_grad_norm", "sequence_length", "burn_in"})
    search = {"lr": "loguniform(1e-4,1e-2)", "batch_size": "64,128,256,512"}

    lr: PositiveSchedule = constant(1e-3)
    """Learning rate."""
    batch_size: PositiveInt = 256
    """Steps per update; with a memory core, sequences."""
    loss: Literal["likelihood", "squared_error"] = "likelihood"
    """What is learned of continuous actions: mean and deviation of a Gaussian, or the mean alone."""
    min_std: float = Field(default=0.1, gt=0, le=1e6)
    """Least deviation that `likelihood` learns, in units of the action: that of a policy without noise has no bound."""
    sequence_length: PositiveInt = 32
    """Steps per sequence that are learned from, with a memory core."""
    burn_in: int = Field(default=8, ge=0)
    """Steps before them that only fill the memory."""
    max_grad_norm: float | None = Field(default=None, gt=0)
    """Largest gradient norm: longer gradients are scaled down to it; none: no clipping."""
    optimizer: OptimizerConfig = OptimizerConfig(eps=1e-8)
    """Optimizer."""

    def full_batch(self, num_envs: int) -> int:
        """Every batch."""
        return self.batch_size

    def steps_per_batch(self, rollout_size: int) -> int:
        """Steps that go through a network with memory at once."""
        return self.batch_size * (self.burn_in + self.sequence_length)


@ALGORITHMS.register("behaviour_cloning")
class BehaviourCloning(OfflineAlgorithm):
    """Maximum likelihood, or least squares, of the actions in a data set; needs no environment and no rewards."""

    Config = BehaviourCloningConfig
    buffers = {"demos": {"type": "minari", "held_out": 0.1}}
    networks = Algorithm.networks - {"critic"}

    def __init__(self, cfg: BehaviourCloningConfig, context: Context) -> None:
        super().__init__("behaviour_cloning", context)
        self.buffers_by_name = context.buffers
        self.gaussian = isinstance(context.spaces.action, gym.spaces.Box)
        self.policy, self.learner, self.behaviour = build_policy(cfg, context, value=False, compiled=True)
        self.static: dict[str, Any] = {}
        self.validation: Batch | None = None
        self.validations: dict[str, Batch] = {}

    def check(self, cfg: BehaviourCloningConfig, buffer: str | None) -> None:
        if cfg.loss == "squared_error" and not self.gaussian:
            problem = f"squared_error needs continuous actions, not {self.demos(buffer).spaces.action}"
            raise ConfigError("algorithm.loss", problem, "use likelihood")
        if self.policy.recurrent:
            check_length(self.demos(buffer), cfg.burn_in + cfg.sequence_length, 1, "algorithm.sequence_length")

    def demos(self, name: str | None) -> Buffer:
        """The buffer of a phase."""
        return self.buffers_by_name[name or "demos"]

    def metrics(self) -> dict[str, float]:
        """Means of the updates, and the loss on episodes that are never learned from."""
        found = self.learner.metrics()
        if self.validation is not None:
            with torch.no_grad():
                loss, _ = self.loss(self.policy, self.validation, **self.static)
            found["loss/validation"] = float(loss)
        return found

    def update_controller(self, now: PhaseContext) -> Report:
        """One update from steps of the data set."""
        cfg, buffer = now.cfg, self.demos(now.buffer)
        burn_in = cfg.burn_in if self.policy.recurrent else 0
        floor = math.log(cfg.min_std) if self.gaussian and cfg.loss == "likelihood" else None
        self.static = {"floor": floor, "squared": cfg.loss == "squared_error", "burn_in": burn_in}
        if buffer.name not in self.validations and buffer.held_out is not None:
            steps = min(VALIDATED, len(buffer.held_out))
            count = max(1, steps // (burn_in + cfg.sequence_length)) if self.policy.recurrent else steps
            self.validations[buffer.name] = self.draw(buffer.held_out, cfg, count)
        self.validation = self.validations.get(buffer.name)
        self.learner.update(self.update, self.draw(buffer, cfg, cfg.batch_size), {"lr": now.at(cfg.lr)}, **self.static)
        return Report(updates=1)

    def draw(self, buffer: Buffer, cfg: BehaviourCloningConfig, count: int) -> Batch:
        """Single steps [1, B], or sequences [T, B] of which rows without a step weigh nothing."""
        if not self.policy.recurrent:
            sample = buffer.sample(count)
            return {**self._tensors(sample, "obs", "action", "first"), "state": ()}
        sample = buffer.sample_sequences(count, cfg.burn_in + cfg.sequence_length)
        mask = sample["mask"][cfg.burn_in :]
        sample["weight"] = (mask * np.float32(mask.size / max(mask.sum(), 1))).astype(np.float32)
        sample["action"] = sample["action"][cfg.burn_in :]
        sample["obs"], sample["first"] = tree_index((sample["obs"], sample["first"]), slice(-1))
        state = to_device(self.policy.trunk.initial_state(count), self.device)
        return {**self._tensors(sample, "obs", "action", "first", "weight"), "state": state}

    def _tensors(self, sample: Sample, *names: str) -> Batch:
        return tensors({name: sample[name] for name in names}, self.device)

    def update(
        self, nets: Networks, batch: Batch, c: Scalars, *, floor: float | None, squared: bool, burn_in: int
    ) -> Metrics:
        """One optimizer step."""
        loss, metrics = self.loss(nets.policy, batch, floor=floor, squared=squared, burn_in=burn_in)
        nets.step("policy", loss, c["lr"])
        return {**metrics, "loss/total": loss}

    def loss(
        self, policy: PolicyNetwork, batch: Batch, *, floor: float | None, squared: bool, burn_in: int
    ) -> tuple[Tensor, Metrics]:
        """-log pi(a|s), or |a - mean(s)|^2."""
        obs, first, state, action = batch["obs"], batch["first"], batch["state"], batch["action"]
        if burn_in:
            with torch.no_grad():
                state = policy(tree_index(obs, slice(burn_in)), state, first[:burn_in])[2]
            obs, first = tree_index((obs, first), slice(burn_in, None))
        params_TBP, weight = policy(obs, state, first)[0], batch.get("weight")
        if not self.gaussian:
            loss = -weighted_mean(policy.distribution.log_prob(params_TBP, action), weight)
            return loss, {"policy/entropy": weighted_mean(policy.distribution.entropy(params_TBP.detach()), weight)}
        mean, log_std = params_TBP.chunk(2, -1)
        error = mean - action.flatten(2)
        with torch.no_grad():
            metrics = {"policy/error": weighted_mean(error.abs().mean(-1), weight), "policy/std": log_std.exp().mean()}
        if squared:
            return weighted_mean(error.square().sum(-1), weight), metrics
        bounded = torch.cat([mean, log_std.clamp(min=floor)], -1)
        return -weighted_mean(policy.distribution.log_prob(bounded, action), weight), metrics
