"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477), for bounded actions.

Reading order: TD3Config -> collect -> update_controller -> update.
With a memory core batches are sequences, as in sac.py. Shapes: T time, B batch, N critics, A actions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from ludus.acting.actors import make_actor
from ludus.acting.behaviour import Behaviour
from ludus.acting.strategies import AddNoise, Level, Uniform, check_bounded
from ludus.algorithms import Algorithm, AlgorithmConfig, Context, Hook, PhaseContext
from ludus.config.schedule import NonNegativeSchedule, PositiveSchedule, UnitSchedule, constant
from ludus.data.buffers.batches import check_size, draw, priorities
from ludus.learning.joint_learner import JointLearner
from ludus.learning.learner import Batch
from ludus.learning.optimizer import OptimizerConfig
from ludus.networks.heads import WIDE, ActorHead, Critics
from ludus.networks.trunk import Trunk, features_of
from ludus.registry import ALGORITHMS
from ludus.types import ActResult, Array, Report, Stateful, Tree


class TD3Config(AlgorithmConfig):
    """Twin delayed deep deterministic policy gradient."""

    fixed = frozenset({"optimizer", "max_grad_norm", "critics", "update_ratio", "sequence_length", "epoch_steps"})

    lr: PositiveSchedule = constant(3e-4)
    """Learning rate of the critics and, unless it has its own, of the actor."""
    actor_lr: PositiveSchedule | None = None
    """Learning rate of the actor."""
    gamma: UnitSchedule = constant(0.99)
    """Discount."""
    batch_size: PositiveInt = 256
    """Transitions per update; with a memory core, sequences."""
    n_step: PositiveInt = 1
    """Rewards summed before bootstrapping."""
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


@ALGORITHMS.register("td3")
class TD3(Algorithm):
    """Deterministic actor-critic: smallest of several critics, smoothed target policy, delayed policy updates."""

    Config = TD3Config
    off_policy = True
    buffers = {"replay": {"type": "uniform", "size": 1_000_000}}

    def __init__(self, cfg: TD3Config, context: Context) -> None:
        space = context.spaces.action
        check_bounded("td3", space, discrete=False)
        self.collector, self.device, self.rng = context.collector, context.device, context.rng
        self.action_shape = tuple(space.shape or ())
        self.learner = self._learner(cfg, context)
        nets = self.learner.model
        self.trunk = nets["trunk"]
        self.sigma = Level(cfg.exploration_noise.start)
        self.behaviour = Behaviour(
            make_actor(self.trunk, {"actor": nets["actor"], "critic": nets["critic"]}, live=True),
            AddNoise(space, self.sigma),
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

    def _learner(self, cfg: TD3Config, context: Context) -> JointLearner:
        network, size = context.network, math.prod(self.action_shape)
        trunk = Trunk(network, context.spaces.observation, context.precision)
        networks = {
            "trunk": trunk,
            "critic": Critics(network.critic, trunk, cfg.critics, action_dim=size),
            "actor": ActorHead(network.actor, trunk, size, default=WIDE),
        }
        return JointLearner(
            {name: part.to(context.device) for name, part in networks.items()},
            self.update,
            cfg.optimizer,
            parts={"critic": ("trunk", "critic"), "actor": ("actor",)},
            targets=("trunk", "critic", "actor"),
            max_grad_norm=cfg.max_grad_norm,
            compiler=None if trunk.memory.recurrent else context.compiler,
        )

    def hooks(self) -> dict[str, Hook]:
        return {"collect": self.collect, "update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        return {"learner": self.learner, "sigma": self.sigma}

    def check(self, cfg: TD3Config, buffer: str | None) -> None:
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
        self.sigma.value = now.at(now.cfg.exploration_noise)
        rollout = self.collector.collect(self.behaviour, steps)
        buffer.add(rollout)
        return Report(env_steps=rollout.env_steps)

    # ---- update --------------------------------------------------------------------------------

    def update_controller(self, now: PhaseContext) -> Report:
        """One gradient step on the critics and, every `policy_delay` updates, on the actor."""
        cfg: TD3Config = now.cfg
        buffer = self.replays[now.buffer or "replay"]
        drawn = draw(buffer, now, recurrent=self.trunk.recurrent, device=self.device)
        if drawn is None:
            return Report()
        batch, index = drawn
        noise = self.rng.standard_normal((*batch["reward"].shape, math.prod(self.action_shape)), np.float32)
        batch["noise"] = torch.from_numpy(noise).to(self.device)
        lr = now.at(cfg.lr)
        numbers = {
            "lr": lr,
            "actor_lr": now.at(cfg.actor_lr) if cfg.actor_lr else lr,
            "tau": now.at(cfg.tau),
            "target_noise": now.at(cfg.target_noise),
            "noise_clip": now.at(cfg.noise_clip),
        }
        due = (self.learner.optimizer.parts["critic"].count + 1) % cfg.policy_delay == 0
        self.learner.step(batch, numbers, policy=due, burn_in=cfg.burn_in)
        buffer.update_priorities(index, priorities(batch))
        return Report(updates=1)

    def update(
        self, nets: Any, batch: Batch, c: Any, *, policy: bool, burn_in: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Critics towards the smoothed target; the actor, if it is its turn, up the first critic."""
        features, _, following = features_of(nets, batch, burn_in)
        with torch.no_grad():
            clip = c["noise_clip"]
            noise = (batch["noise"] * c["target_noise"]).clamp(-clip, clip)
            action = (nets["target_actor"](following).tanh() + noise).clamp(-1.0, 1.0)
            next_q = nets["target_critic"](following, action).squeeze(-1).amin(0)
            target_TB = batch["reward"] + batch["discount"] * next_q
        q_NTB = nets["critic"](features, batch["action"].flatten(2)).squeeze(-1)
        error_NTB = q_NTB - target_TB
        batch["error"].copy_(error_NTB.detach().abs().mean(0) * (batch["weight"] > 0))
        critic_loss = (batch["weight"] * error_NTB.square()).mean((1, 2)).sum()
        nets.descend("critic", critic_loss, c["lr"])
        metrics = {"loss/critic": critic_loss, "policy/q": q_NTB.mean()}
        if not policy:
            return critic_loss, metrics

        features = features.detach()
        q_TB = nets["critic"](features, nets["actor"](features).tanh())[0].squeeze(-1)
        actor_loss = -(batch["weight"] * q_TB).mean()
        nets.descend("actor", actor_loss, c["actor_lr"])
        nets.follow(c["tau"])
        return critic_loss + actor_loss, {**metrics, "loss/actor": actor_loss}
