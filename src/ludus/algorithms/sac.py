"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905), for bounded and for discrete actions (arXiv:1910.07207).

Reading order: SACConfig -> collect -> update_controller -> update -> soft_value.
With a memory core batches are sequences: the memory of the first step is the one stored while collecting, the first
`burn_in` steps only bring it up to date. Trunk (encoder and memory) belongs to the critics; the actor reads it.

Shapes: T time, B batch, N critics, D features, A actions.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from ludus.acting.actors import make_actor
from ludus.acting.behaviour import Behaviour
from ludus.acting.strategies import SampleSquashed, Uniform, check_bounded
from ludus.algorithms import Algorithm, AlgorithmConfig, Context, Hook, PhaseContext
from ludus.config.schedule import NonNegativeSchedule, PositiveSchedule, UnitSchedule, constant
from ludus.data.buffers.batches import check_size, draw, priorities
from ludus.learning.joint_learner import JointLearner
from ludus.learning.learner import Batch
from ludus.learning.optimizer import OptimizerConfig
from ludus.math.distributions import Distribution, SquashedGaussian, distribution_for
from ludus.networks.heads import WIDE, ActorHead, Critics, Temperature
from ludus.networks.trunk import Trunk, features_of
from ludus.registry import ALGORITHMS
from ludus.types import ActResult, Array, Report, Stateful, Tree


class SACConfig(AlgorithmConfig):
    """Soft actor-critic."""

    fixed = frozenset(
        {
            "optimizer",
            "max_grad_norm",
            "critics",
            "initial_alpha",
            "target_entropy",
            "update_ratio",
            "sequence_length",
            "epoch_steps",
        }
    )

    lr: PositiveSchedule = constant(3e-4)
    """Learning rate of the critics and, unless it has its own, of the actor."""
    actor_lr: PositiveSchedule | None = None
    """Learning rate of the actor."""
    alpha_lr: PositiveSchedule | None = None
    """Learning rate of the temperature."""
    gamma: UnitSchedule = constant(0.99)
    """Discount."""
    batch_size: PositiveInt = 256
    """Transitions per update; with a memory core, sequences."""
    n_step: PositiveInt = 1
    """Rewards summed before bootstrapping."""
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
    learning_starts: PositiveInt = 1_000
    """Steps that go into the buffer before the first update; until then actions are uniformly random."""
    train_freq: PositiveInt = 1
    """Vector steps per cycle."""
    update_ratio: float = Field(default=1.0, gt=0)
    """Updates per environment step."""
    sequence_length: PositiveInt = 32
    """Steps per sequence that are learned from, with a memory core."""
    burn_in: int = Field(default=8, ge=0)
    """Steps before them that only refresh the stored memory."""
    max_grad_norm: float | None = Field(default=None, gt=0)
    """Longest gradient of each part; none does not clip."""
    epoch_steps: PositiveInt = 1_000
    """Environment steps per epoch: metrics, evaluation and checkpoints come at its end."""
    optimizer: OptimizerConfig = OptimizerConfig(eps=1e-8)
    """Optimizer."""

    def planned_updates(self, env_steps: int, num_envs: int) -> int:
        return int(max(env_steps - self.learning_starts, 0) * self.update_ratio)

    def full_batch(self, num_envs: int) -> int:
        return self.batch_size


@ALGORITHMS.register("sac")
class SAC(Algorithm):
    """Maximum-entropy actor-critic with an ensemble of critics and a learned temperature."""

    Config = SACConfig
    off_policy = True
    buffers = {"replay": {"type": "uniform", "size": 1_000_000}}

    def __init__(self, cfg: SACConfig, context: Context) -> None:
        space = context.spaces.action
        check_bounded("sac", space, discrete=True)
        self.collector, self.device, self.rng = context.collector, context.device, context.rng
        self.discrete = isinstance(space, gym.spaces.Discrete)
        self.distribution: Any = distribution_for(space, squash=True)
        self.target_entropy = target_entropy(cfg, self.distribution)
        self.learner = self._learner(cfg, context)
        nets = self.learner.model
        self.trunk = nets["trunk"]
        self.behaviour = Behaviour(
            make_actor(self.trunk, {"actor": nets["actor"], "critic": nets["critic"]}, live=True),
            SampleSquashed(self.distribution, space),
            blind=Uniform.unit(space),
            rng=context.rng,
            evaluation_rng=context.evaluation_rng,
        )
        self.replays = context.buffers
        for buffer in self.replays.values():
            if self.trunk.recurrent:
                buffer.keep_state(self.initial_state(1))
        self.default_cycle = ("collect", {"update_controller": {"per_env_step": cfg.update_ratio}})
        self.epoch_steps = cfg.epoch_steps

    def _learner(self, cfg: SACConfig, context: Context) -> JointLearner:
        network, distribution = context.network, self.distribution
        trunk = Trunk(network, context.spaces.observation, context.precision)
        shape = {"outputs": distribution.param_dim} if self.discrete else {"action_dim": distribution.size}
        networks = {
            "trunk": trunk,
            "critic": Critics(network.critic, trunk, cfg.critics, **shape),
            "actor": ActorHead(network.actor, trunk, distribution.param_dim, default=WIDE),
            "temperature": Temperature(cfg.initial_alpha),
        }
        return JointLearner(
            {name: part.to(context.device) for name, part in networks.items()},
            self.update,
            cfg.optimizer,
            parts={"critic": ("trunk", "critic"), "actor": ("actor",), "temperature": ("temperature",)},
            targets=("trunk", "critic"),
            max_grad_norm=cfg.max_grad_norm,
            compiler=None if trunk.memory.recurrent else context.compiler,
        )

    def hooks(self) -> dict[str, Hook]:
        return {"collect": self.collect, "update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        return {"learner": self.learner}

    def check(self, cfg: SACConfig, buffer: str | None) -> None:
        check_size(self.replays[buffer or "replay"], cfg, recurrent=self.trunk.recurrent)

    def metrics(self) -> dict[str, float]:
        assert self.collector is not None
        return {**self.collector.statistics(), **self.learner.metrics()}

    def initial_state(self, batch: int) -> Tree:
        return self.behaviour.initial_state(batch)

    def act(self, obs: Array, state: Tree, first: Array, *, deterministic: bool) -> ActResult:
        return self.behaviour.evaluate(obs, state, first, deterministic=deterministic)

    # ---- collect -------------------------------------------------------------------------------

    def collect(self, now: PhaseContext) -> Report:
        """A few steps into the buffer; random ones until there is something to learn from."""
        assert self.collector is not None
        buffer = self.replays[now.buffer or "replay"]
        steps = min(now.cfg.train_freq, now.remaining_steps // self.collector.num_envs)
        self.behaviour.uniform = buffer.added < now.cfg.learning_starts and self.learner.optimizer.count == 0
        rollout = self.collector.collect(self.behaviour, steps)
        buffer.add(rollout)
        return Report(env_steps=rollout.env_steps)

    # ---- update --------------------------------------------------------------------------------

    def update_controller(self, now: PhaseContext) -> Report:
        """One gradient step on critics, actor and temperature."""
        cfg: SACConfig = now.cfg
        buffer = self.replays[now.buffer or "replay"]
        drawn = draw(buffer, now, recurrent=self.trunk.recurrent, device=self.device)
        if drawn is None:
            return Report()
        batch, index = drawn
        if not self.discrete:
            noise = self.rng.standard_normal((2, *batch["reward"].shape, self.distribution.size), np.float32)
            batch["noise"] = torch.from_numpy(noise).to(self.device)
        lr = now.at(cfg.lr)
        numbers = {
            "lr": lr,
            "actor_lr": now.at(cfg.actor_lr) if cfg.actor_lr else lr,
            "alpha_lr": now.at(cfg.alpha_lr) if cfg.alpha_lr else lr,
            "tau": now.at(cfg.tau),
            "alpha": 0.0 if cfg.alpha == "auto" else now.at(cfg.alpha),
            "target_entropy": self.target_entropy,
        }
        self.learner.step(batch, numbers, learn_alpha=cfg.alpha == "auto", burn_in=cfg.burn_in)
        buffer.update_priorities(index, priorities(batch))
        return Report(updates=1)

    def update(
        self, nets: Any, batch: Batch, c: Any, *, learn_alpha: bool, burn_in: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Critics towards the soft target, actor towards the critics, temperature towards the wanted entropy."""
        features, following, target_following = features_of(nets, batch, burn_in)
        noise = batch["noise"] if not self.discrete else (None, None)
        alpha = nets["temperature"]().exp().detach() if learn_alpha else c["alpha"]

        with torch.no_grad():
            value, _ = self.soft_value(
                nets["target_critic"], target_following, nets["actor"](following), noise[0], alpha
            )
            target_TB = batch["reward"] + batch["discount"] * value
        q_NTB = self.q(nets["critic"], features, batch["action"])
        error_NTB = q_NTB - target_TB
        batch["error"].copy_(error_NTB.detach().abs().mean(0) * (batch["weight"] > 0))
        critic_loss = 0.5 * (batch["weight"] * error_NTB.square()).mean((1, 2)).sum()
        nets.descend("critic", critic_loss, c["lr"])

        features = features.detach()
        value, entropy = self.soft_value(nets["critic"], features, nets["actor"](features), noise[1], alpha)
        actor_loss = -(batch["weight"] * value).mean()
        nets.descend("actor", actor_loss, c["actor_lr"])

        entropy = (batch["weight"] * entropy).mean().detach()
        if learn_alpha:
            log_alpha = nets["temperature"]().squeeze()
            nets.descend("temperature", log_alpha * (entropy - c["target_entropy"]), c["alpha_lr"])
        nets.follow(c["tau"])
        return critic_loss + actor_loss, {
            "loss/critic": critic_loss,
            "loss/actor": actor_loss,
            "policy/entropy": entropy,
            "policy/alpha": torch.as_tensor(alpha, dtype=torch.float32, device=entropy.device).squeeze(),
            "policy/q": q_NTB.mean(),
        }

    def q(self, critic: Any, features: Tensor, action: Tensor) -> Tensor:
        """Values of given actions, [N, T, B]."""
        if not self.discrete:
            return critic(features, action.flatten(2)).squeeze(-1)
        q_NTBA = critic(features)
        index = action.long().unsqueeze(-1).expand(*q_NTBA.shape[:-1], 1)
        return q_NTBA.gather(-1, index).squeeze(-1)

    def soft_value(
        self, critic: Any, features: Tensor, params: Tensor, noise: Tensor | None, alpha: Any
    ) -> tuple[Tensor, Tensor]:
        """(V, entropy) [T, B]: E[min Q(s, a) - alpha log pi(a|s)], exact for discrete actions, by one sample else."""
        if self.discrete:
            log_pi = params.log_softmax(-1)
            pi = log_pi.exp()
            q = critic(features).amin(0)
            return (pi * (q - alpha * log_pi)).sum(-1), -(pi * log_pi).sum(-1)
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
