"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477), for bounded actions.

Reading order: TD3Config -> collect -> update_controller -> update.
With a memory core batches are sequences, as in sac.py. Shapes: T time, B batch, N critics, A actions.
"""

from __future__ import annotations

import math

import torch
from pydantic import PositiveInt
from torch import nn

from ludus.acting.strategies import AddNoise, Level, check_bounded
from ludus.algorithms import Algorithm, Context, Hook, PhaseContext
from ludus.algorithms._replay import ReplayConfig, actor_critic_behaviour
from ludus.config.schedule import NonNegativeSchedule, PositiveSchedule, UnitSchedule, constant
from ludus.data.buffers.batches import check_size, draw, priorities
from ludus.learning.learner import Batch, Group, Learner, Networks, Scalars, Steps
from ludus.math.losses import within
from ludus.networks.heads import WIDE, ActorHead, Critics
from ludus.networks.trunk import Trunk, features_of
from ludus.registry import ALGORITHMS
from ludus.types import Report, Stateful


class TD3Config(ReplayConfig):
    """Twin delayed deep deterministic policy gradient."""

    fixed = ReplayConfig.fixed | {"critics", "sequence_length"}

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
class TD3(Algorithm):
    """Deterministic actor-critic: smallest of several critics, smoothed target policy, delayed policy updates."""

    Config = TD3Config
    off_policy = True
    buffers = {"replay": {"type": "uniform", "size": 1_000_000}}

    def __init__(self, cfg: TD3Config, context: Context) -> None:
        space = context.spaces.action
        check_bounded("td3", space, discrete=False)
        cfg.check(context.num_envs)
        self.collector, self.device, self.replay = context.collector, context.device, context.buffers
        self.action_size = math.prod(space.shape or ())
        self.trunk = Trunk(context.network, context.spaces.observation, context.precision)
        self.learner = self._learner(cfg, context)
        self.sigma = Level(cfg.exploration_noise.start)
        self.behaviour = actor_critic_behaviour(self.trunk, self.learner, AddNoise(space, self.sigma), context)
        self.default_cycle = ("collect", {"update_controller": {"per_env_step": cfg.update_ratio}})
        self.epoch_steps = cfg.epoch_steps
        for buffer in self.replay.values():
            if self.trunk.recurrent:
                buffer.store_memory(self.initial_state(1))

    def _learner(self, cfg: TD3Config, context: Context) -> Learner:
        networks: dict[str, nn.Module] = {
            "trunk": self.trunk,
            "critic": Critics(context.network.critic, self.trunk, cfg.critics, action_dim=self.action_size),
            "actor": ActorHead(context.network.actor, self.trunk, self.action_size, default=WIDE),
        }
        return Learner(
            {name: part.to(context.device) for name, part in networks.items()},
            {
                "critic": Group(("trunk", "critic"), cfg.optimizer, cfg.max_grad_norm),
                "actor": Group(("actor",), cfg.optimizer, cfg.max_grad_norm),
            },
            targets=list(networks),
            generator=context.rng,
            compiler=None if self.trunk.recurrent else context.compiler,
        )

    def hooks(self) -> dict[str, Hook]:
        return {"collect": self.collect, "update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        return {"learner": self.learner, "sigma": self.sigma}

    def check(self, cfg: TD3Config, buffer: str | None) -> None:
        """The buffer must hold a batch."""
        check_size(self.replay[buffer or "replay"], cfg, recurrent=self.trunk.recurrent)

    def metrics(self) -> dict[str, float]:
        """Episodes, and means over the updates."""
        return {**self.statistics(), **self.learner.metrics()}

    def collect(self, now: PhaseContext) -> Report:
        """A few steps with noise into the buffer; random ones until there is something to learn from."""
        self.sigma.value = now.at(now.cfg.exploration_noise)
        buffer = self.replay[now.buffer or "replay"]
        self.behaviour.uniform = buffer.added < now.cfg.learning_starts and self.learner.updates == 0
        rollout = self.rollout(now, now.cfg.train_freq)
        buffer.add(rollout)
        return Report(env_steps=rollout.env_steps)

    # ---- update --------------------------------------------------------------------------------

    def update_controller(self, now: PhaseContext) -> Report:
        """One gradient step on the critics and, every `policy_delay` updates, on the actor."""
        cfg, buffer = now.cfg, self.replay[now.buffer or "replay"]
        drawn = draw(buffer, now, recurrent=self.trunk.recurrent, device=self.device)
        if drawn is None:
            return Report()
        batch, index = drawn
        scalars = {name: now.at(getattr(cfg, name)) for name in ("lr", "tau", "target_noise", "noise_clip")}
        scalars["actor_lr"] = now.at(cfg.actor_lr or cfg.lr)
        due = (self.learner.updates + 1) % cfg.policy_delay == 0
        found = self.learner.update(
            self.update, batch, scalars, accumulate=cfg.accumulate, policy=due, burn_in=cfg.burn_in
        )
        buffer.update_priorities(index, priorities(found["error"]))
        return Report(updates=1)

    def update(self, nets: Networks, batch: Batch, c: Scalars, *, policy: bool, burn_in: int) -> Steps:
        """Critics towards the smoothed target; the actor, if it is its turn, up the first critic."""
        features, _, following = features_of(nets.trunk, nets.target_trunk, batch, burn_in)
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
