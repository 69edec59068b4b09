"""PPO that also learns from earlier rollouts, with capped importance weights.

Reading order: PPOReplayConfig -> collect -> fresh_targets -> replayed_targets -> update_controller -> loss.
The surrogate is decoupled (Hilton et al. 2022, arXiv:2110.00641): the policy may move so far from what it was when
this cycle began, whoever drew the actions; the policy that drew them only enters by a weight, cut at `replay_is_clip`.
Returns of old rollouts are those of V-trace (Espeholt et al. 2018); for fresh ones these are generalised advantages.

Shapes: T time, B environments (or sequences).
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
from ludus.data.buffers.batches import check_length
from ludus.data.buffers.sampling import tensors
from ludus.data.rollout import Rollout, minibatches
from ludus.errors import ConfigError
from ludus.learning.learner import Batch, Learner
from ludus.learning.optimizer import OptimizerConfig
from ludus.math.losses import clipped_surrogate, normalized
from ludus.math.returns import gae, vtrace
from ludus.networks.policy import Policy
from ludus.registry import ALGORITHMS
from ludus.types import ActResult, Array, Report, Stateful, Tree, to_device, tree_map

Columns = dict[str, Tensor]


class PPOReplayConfig(AlgorithmConfig):
    """Proximal policy optimisation with replayed rollouts."""

    fixed = frozenset({"optimizer", "max_grad_norm"})

    rollout_steps: PositiveInt = 128
    """Steps per environment between updates."""
    epochs: PositiveInt = 4
    """Passes over the fresh and the replayed steps."""
    batch_size: float = Field(default=0.25, gt=0)
    """Steps per minibatch, or a fraction of the fresh rollout up to 1; must divide the rollout. With a memory
    core whole sequences are taken, at least one."""
    replay_ratio: int = Field(default=1, ge=0, le=8)
    """Replayed sequences for every fresh one; 0 is plain PPO."""
    replay_is_clip: float = Field(default=10.0, gt=0)
    """Largest importance weight of a replayed step."""
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
    entropy_coef: NonNegativeSchedule = constant(0.0)
    """Weight of the entropy bonus."""
    value_coef: NonNegativeSchedule = constant(0.5)
    """Weight of the value loss."""
    max_grad_norm: float | None = Field(default=0.5, gt=0)
    """Longest gradient; none does not clip."""
    target_kl: float | None = Field(default=None, gt=0)
    """Skip the remaining epochs of this cycle once the divergence exceeds it."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer."""

    def steps_per_batch(self, rollout_size: int) -> int:
        """`batch_size` in steps."""
        return max(1, int(self.batch_size * rollout_size)) if self.batch_size <= 1 else int(self.batch_size)

    def planned_updates(self, env_steps: int, num_envs: int) -> int:
        size = self.rollout_steps * num_envs
        per_pass = max(1, size // self.steps_per_batch(size)) * (1 + self.replay_ratio)
        return env_steps // size * self.epochs * per_pass

    def full_batch(self, num_envs: int) -> int:
        return self.steps_per_batch(self.rollout_steps * num_envs)

    def check(self, num_envs: int) -> None:
        size = self.rollout_steps * num_envs
        batch = self.steps_per_batch(size)
        if batch < 2 or batch > size or size % batch or (self.batch_size > 1 and self.batch_size % 1):
            problem = (
                f"{self.batch_size:g} does not divide the rollout of {num_envs} x {self.rollout_steps} = {size} steps"
            )
            raise ConfigError("algorithm.batch_size", problem, "use a divisor above 1, or a fraction such as 0.25")


@ALGORITHMS.register("ppo_replay")
class PPOReplay(Algorithm):
    """Clipped surrogate objective over fresh and replayed steps."""

    Config = PPOReplayConfig
    buffers = {"replay": {"type": "uniform", "size": 4_096}}

    def __init__(self, cfg: PPOReplayConfig, context: Context) -> None:
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
            compiler=None if self.policy.recurrent else context.compiler,
        )
        self.behaviour = Behaviour(
            make_actor(self.policy.trunk, self.policy.heads),
            SampleClipped(self.distribution, context.spaces.action),
            learner=self.learner,
            rng=context.rng,
            evaluation_rng=context.evaluation_rng,
        )
        self.replays = context.buffers
        for buffer in self.replays.values():
            buffer.keep("log_prob")
            if self.policy.recurrent:
                buffer.keep_state(self.policy.initial_state(1))
        self.columns: Columns | None = None
        self.start_state: Tree = ()

    def hooks(self) -> dict[str, Hook]:
        return {"collect": self.collect, "update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        return {"learner": self.learner}

    def check(self, cfg: PPOReplayConfig, buffer: str | None) -> None:
        if not cfg.replay_ratio:
            return
        replay, every = self.replays[buffer or "replay"], cfg.rollout_steps if self.policy.recurrent else 1
        check_length(replay, cfg.rollout_steps, every, "algorithm.rollout_steps")
        wanted = cfg.rollout_steps + cfg.replay_ratio - 1
        if not replay.fits(wanted):
            problem = f"{cfg.replay_ratio} of the {replay.rows:,} steps kept of each environment never begin a rollout"
            remedy = f"raise buffers.{replay.name}.size to {wanted * replay.num_envs:,} or more"
            raise ConfigError("algorithm.replay_ratio", problem, remedy)

    def initial_state(self, batch: int) -> Tree:
        return self.behaviour.initial_state(batch)

    def act(self, obs: Array, state: Tree, first: Array, *, deterministic: bool) -> ActResult:
        return self.behaviour.evaluate(obs, state, first, deterministic=deterministic)

    # ---- collect -------------------------------------------------------------------------------

    def collect(self, now: PhaseContext) -> Report:
        """One rollout with the current policy, as many old ones as asked for, and the targets to learn from both."""
        assert self.collector is not None
        buffer = self.replays[now.buffer or "replay"]
        steps = min(now.cfg.rollout_steps, now.remaining_steps // self.collector.num_envs)
        rollout = self.collector.collect(self.behaviour, steps)
        fresh, fresh_state = self.fresh_targets(rollout, now), to_device(rollout.state, self.device)
        replayed = self.replayed_targets(buffer, now, *rollout.shape)
        if replayed is None:
            self.columns, self.start_state = fresh, fresh_state
        else:
            columns, state = replayed
            self.columns = {name: torch.cat([column, columns[name]], 1) for name, column in fresh.items()}
            self.start_state = tree_map(lambda new, old: torch.cat([new, old]), fresh_state, state)
        buffer.add(rollout, log_prob=fresh["log_prob"].cpu().numpy())
        weight = self.columns["weight"]
        return Report(
            env_steps=rollout.env_steps,
            metrics={
                **self.collector.statistics(),
                "policy/is_weight/max": float(weight.max()),
                "policy/is_weight/mean": float(weight.sum() / self.columns["used"].sum()),
            },
        )

    @torch.no_grad()
    def fresh_targets(self, rollout: Rollout, now: PhaseContext) -> Columns:
        """Log-probabilities, advantages and value targets [T, B] of a rollout of the current policy."""
        steps, _ = rollout.shape
        obs, first = self._tensor(rollout.obs), self._tensor(rollout.first)
        params_TBP, value_TB, _ = self.policy(obs, to_device(rollout.state, self.device), first)
        values = value_TB.cpu().numpy()
        next_value = values[1:].copy()
        if rollout.finals is not None:  # a truncated episode goes on in its true final observation, not in the next one
            next_value[rollout.finals.t, rollout.finals.b] = self._final_values(rollout.finals)
        gamma, lam = now.at(now.cfg.gamma), now.at(now.cfg.gae_lambda)
        reward, terminated = rollout.credited(values[:steps])
        advantage, target = gae(reward, values[:steps], next_value, terminated, rollout.done, gamma, lam)
        real = torch.ones(rollout.shape, device=self.device)
        if rollout.broken is not None:
            real = self._tensor(~rollout.broken).float()
        action = self._tensor(rollout.action)
        return {
            "obs": obs[:steps],
            "action": action,
            "first": first[:steps],
            "log_prob": self.distribution.log_prob(params_TBP[:steps], action),
            "advantage": self._tensor(advantage),
            "target": self._tensor(target),
            "weight": real,
            "used": real,
        }

    @torch.no_grad()
    def replayed_targets(self, buffer: Any, now: PhaseContext, steps: int, envs: int) -> tuple[Columns, Tree] | None:
        """The same for old rollouts, by the current policy's values and importance weights; none while too few are."""
        cfg: PPOReplayConfig = now.cfg
        count = cfg.replay_ratio * envs
        keep = self.policy.recurrent
        if not count or not buffer.can_sample_sequences(count, steps, state=keep):
            return None
        sample = tensors(buffer.sample_sequences(count, steps, state=keep), self.device)
        sample = {name: tree_map(torch.clone, tree) for name, tree in sample.items()}  # the next draw overwrites it
        state = sample["state"] if keep else ()
        params_TBP, value_TB, _ = self.policy(sample["obs"], state, sample["first"])
        log_prob = self.distribution.log_prob(params_TBP[:-1], sample["action"])
        used = sample["mask"].float()  # a slot with a final observation is no step: its weight and its error are 0
        ratio = (log_prob - sample["log_prob"]).exp() * used

        gamma, lam = now.at(cfg.gamma), now.at(cfg.gae_lambda)
        value, next_value = value_TB[:-1], value_TB[1:]
        discount = gamma * (~sample["terminated"]).float()
        target, _ = vtrace(value, next_value, sample["reward"], discount, ratio, lam)
        following = torch.cat([lam * target[1:] + (1 - lam) * value[1:], next_value[-1:]])
        columns = {
            "obs": sample["obs"][:-1],
            "action": sample["action"],
            "first": sample["first"][:-1],
            "log_prob": log_prob,
            "advantage": (sample["reward"] + discount * following - value) * used,
            "target": target,
            "weight": ratio.clamp(max=cfg.replay_is_clip),
            "used": used,
        }
        return columns, state

    def _final_values(self, finals: Any) -> Array:
        first = torch.zeros(1, len(finals.t), dtype=torch.bool, device=self.device)
        obs, state = self._tensor(finals.obs).unsqueeze(0), to_device(finals.state, self.device)
        return self.policy(obs, state, first)[1][0].cpu().numpy()

    def _tensor(self, array: Array) -> Tensor:
        return torch.as_tensor(array, device=self.device)

    # ---- update --------------------------------------------------------------------------------

    def update_controller(self, now: PhaseContext) -> Report:
        """`epochs` passes of minibatch updates over fresh and replayed steps."""
        if self.columns is None:
            return Report()
        cfg: PPOReplayConfig = now.cfg
        numbers = {
            "lr": now.at(cfg.lr),
            "clip": now.at(cfg.clip),
            "value_coef": now.at(cfg.value_coef),
            "entropy_coef": now.at(cfg.entropy_coef),
            **({"memory_lr": now.at(cfg.memory_lr)} if cfg.memory_lr else {}),
        }
        assert self.collector is not None
        size = self.columns["advantage"].numel()
        fresh = len(self.columns["advantage"]) * self.collector.num_envs
        count = max(1, min(size // cfg.steps_per_batch(fresh), size // 2))  # what is normalised has two steps or more
        updates = 0
        for _ in range(cfg.epochs):
            for batch in minibatches(self.columns, self.start_state, count, self.rng, sequences=self.policy.recurrent):
                self.learner.step(batch, numbers)
                updates += 1
            if cfg.target_kl is not None and self.learner.last("policy/kl") > cfg.target_kl:
                break
        self.columns = None
        return Report(updates=updates, metrics={**self.learner.metrics(), "policy_lr": numbers["lr"]})

    def loss(self, policy: Any, batch: Batch, c: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Weighted clipped surrogate + value error - entropy bonus."""
        params, value, _ = policy(batch["obs"], batch["state"], batch["first"])
        log_ratio = self.distribution.log_prob(params, batch["action"]) - batch["log_prob"]
        ratio, used = log_ratio.exp(), batch["used"]
        share = used / used.sum().clamp(min=1)  # means are of steps: a slot with a final observation is none

        advantage = normalized(batch["advantage"], used)
        policy_loss = clipped_surrogate(ratio, batch["weight"] * advantage * share * used.numel(), c["clip"])
        value_loss = 0.5 * (share * (value - batch["target"]).square()).sum()
        entropy = (share * self.distribution.entropy(params)).sum()
        loss = policy_loss + c["value_coef"] * value_loss - c["entropy_coef"] * entropy
        with torch.no_grad():
            kl = (share * (ratio - 1 - log_ratio)).sum()
            clipped = (share * ((ratio - 1).abs() > c["clip"])).sum()
        return loss, {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "policy/entropy": entropy,
            "policy/kl": kl,
            "policy/clip_fraction": clipped,
        }
