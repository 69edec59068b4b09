"""PPO that also learns from earlier rollouts, with capped importance weights.

Reading order: PPOReplayConfig -> collect -> fresh -> replayed -> update_controller -> update -> loss.
The surrogate is decoupled (Hilton et al. 2022, arXiv:2110.00641): its ratio is that to the policy at the beginning of
the cycle, also for actions that an older policy chose. The older policy enters by an importance weight, cut at
`replay_is_clip`. Value targets of old rollouts are those of V-trace (Espeholt et al. 2018), fresh ones have generalised
advantages.

Shapes: T time, B environments (or sequences).
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from ludus.algorithms import Algorithm, Context, Hook, PhaseContext
from ludus.algorithms._on_policy import Experience, advantages, build_policy, scalars_of
from ludus.algorithms._on_policy_config import MinibatchConfig
from ludus.data.buffers.batches import check_length
from ludus.data.buffers.sampling import Buffer, tensors
from ludus.data.rollout import Rollout, minibatches, single_steps
from ludus.errors import ConfigError
from ludus.learning.learner import Batch, Metrics, Networks, Scalars
from ludus.math.policy_gradient import clipped_surrogate, normalized, weighted_mean
from ludus.math.values import vtrace
from ludus.networks.policy import PolicyNetwork
from ludus.registry import ALGORITHMS
from ludus.types import Report, Stateful, tree_index, tree_map


class PPOReplayConfig(MinibatchConfig):
    """Proximal policy optimisation with replayed rollouts."""

    search = {**MinibatchConfig.search, "replay_ratio": "1,2,4"}

    replay_ratio: int = Field(default=1, ge=0, le=8)
    """Replayed sequences for every fresh one; 0 is plain PPO."""
    replay_is_clip: float = Field(default=10.0, gt=0)
    """Largest importance weight of a replayed step."""

    def planned_updates(self, env_steps: int, num_envs: int) -> int:
        """Replayed steps make as many minibatches as fresh ones."""
        return super().planned_updates(env_steps, num_envs) * (1 + self.replay_ratio)


@ALGORITHMS.register("ppo_replay")
class PPOReplay(Algorithm):
    """Clipped surrogate objective over fresh and replayed steps."""

    Config = PPOReplayConfig
    buffers = {"replay": {"type": "uniform", "size": 4_096}}

    def __init__(self, cfg: PPOReplayConfig, context: Context) -> None:
        self.collector, self.rng, self.device = context.collector, context.rng, context.device
        self.replay, self.num_envs = context.buffers, context.num_envs
        self.policy, self.learner, self.behaviour = build_policy(cfg, context, compiled=True)
        for buffer in self.replay.values():
            buffer.add_column("log_prob")
            if self.policy.recurrent:
                buffer.store_memory(self.policy.trunk.initial_state(1))
        self.experience: Experience | None = None

    def hooks(self) -> dict[str, Hook]:
        """`collect`, then `update_controller`."""
        return {"collect": self.collect, "update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        """Weights and moments; the buffers keep what is replayed."""
        return {"learner": self.learner}

    def check(self, cfg: PPOReplayConfig, buffer: str | None) -> None:
        """The buffer must hold whole rollouts."""
        if not cfg.replay_ratio:
            return
        replay, every = self.replay[buffer or "replay"], cfg.rollout_steps if self.policy.recurrent else 1
        check_length(replay, cfg.rollout_steps, every, "algorithm.rollout_steps")
        wanted = cfg.rollout_steps + cfg.replay_ratio - 1
        if not replay.fits(wanted):
            problem = f"{cfg.replay_ratio} of the {replay.rows:,} steps kept of each environment never begin a rollout"
            remedy = f"raise buffers.{replay.name}.size to {wanted * replay.num_envs:,} or more"
            raise ConfigError("algorithm.replay_ratio", problem, remedy)

    # ---- collect -------------------------------------------------------------------------------

    def collect(self, now: PhaseContext) -> Report:
        """One rollout of the current policy, `replay_ratio` times as many old ones, and the targets for both."""
        buffer = self.replay[now.buffer or "replay"]
        rollout = self.rollout(now, now.cfg.rollout_steps)
        self.experience = fresh = self.fresh(rollout, now)
        replayed = self.replayed(buffer, now, *rollout.shape)
        if replayed is not None:
            old = {name: replayed.columns[name] for name in fresh.columns}
            columns = tree_map(lambda new, old: torch.cat([new, old], 1), fresh.columns, old)
            state = tree_map(lambda new, old: torch.cat([new, old]), fresh.state, replayed.state)
            self.experience = Experience(columns, state)
        buffer.add(rollout, log_prob=fresh.columns["log_prob"].cpu().numpy())
        weight, used = (self.experience.columns[name] for name in ("weight", "used"))
        metrics = {
            "policy/is_weight/max": float(weight.max()),
            "policy/is_weight/mean": float(weight.sum() / used.sum()),
        }
        return Report(env_steps=rollout.env_steps, metrics={**self.statistics(), **metrics})

    def fresh(self, rollout: Rollout, now: PhaseContext) -> Experience:
        """Targets of a rollout of the current policy; broken steps are not used."""
        columns, state = advantages(self.policy, rollout, now.at(now.cfg.gamma), now.at(now.cfg.gae_lambda))
        used = torch.ones_like(columns["target"])
        if rollout.broken is not None:
            used = torch.as_tensor(~rollout.broken, device=self.device).float()
        del columns["value"]
        return Experience({**columns, "weight": used, "used": used}, state)

    @torch.no_grad()
    def replayed(self, buffer: Buffer, now: PhaseContext, steps: int, envs: int) -> Experience | None:
        """Targets of old rollouts by the current policy's values and importance weights; None while there are too few.

        A slot that holds a final observation is no step: its weight and its advantage are 0.
        """
        cfg: PPOReplayConfig = now.cfg
        count = cfg.replay_ratio * envs
        keep = self.policy.recurrent
        if not count or not buffer.can_sample_sequences(count, steps, state=keep):
            return None
        sample = tensors(buffer.sample_sequences(count, steps, state=keep), self.device)
        sample = {name: tree_map(torch.clone, tree) for name, tree in sample.items()}  # the next draw overwrites it
        state = sample["state"] if keep else ()
        params_TBP, value_TB, _ = self.policy(sample["obs"], state, sample["first"])
        log_prob = self.policy.distribution.log_prob(params_TBP[:-1], sample["action"])
        used = sample["mask"].float()
        ratio = (log_prob - sample["log_prob"]).exp() * used

        gamma, lam = now.at(cfg.gamma), now.at(cfg.gae_lambda)
        value, next_value = value_TB[:-1], value_TB[1:]
        discount = gamma * (~sample["terminated"]).float()
        target, _ = vtrace(value, next_value, sample["reward"], discount, ratio, lam)
        following = torch.cat([lam * target[1:] + (1 - lam) * value[1:], next_value[-1:]])
        columns = {
            "obs": tree_index(sample["obs"], slice(-1)),
            "action": sample["action"],
            "first": sample["first"][:-1],
            "log_prob": log_prob,
            "advantage": (sample["reward"] + discount * following - value) * used,
            "target": target,
            "weight": ratio.clamp(max=cfg.replay_is_clip),
            "used": used,
        }
        return Experience(columns, state)

    # ---- update --------------------------------------------------------------------------------

    def update_controller(self, now: PhaseContext) -> Report:
        """`epochs` passes of minibatch updates over fresh and replayed steps."""
        if self.experience is None:
            return Report()
        cfg: PPOReplayConfig = now.cfg
        (columns, state), self.experience = self.experience, None
        scalars = scalars_of(now, "clip", "value_coef", "entropy_coef")
        static = {"whole": cfg.accumulate == 1, "normalize": cfg.normalize_advantage}
        fresh = len(columns["used"]) * self.num_envs
        count, updates = cfg.minibatches(columns["used"].numel(), fresh), 0
        if not self.policy.recurrent:
            columns = single_steps(columns)  # once instead of in every epoch
        for _ in range(cfg.epochs):
            for batch in minibatches(columns, state, count, self.rng, sequences=self.policy.recurrent):
                if cfg.accumulate > 1:  # a part of a minibatch does not know its mean
                    batch = prepared(batch, normalize=cfg.normalize_advantage)
                self.learner.update(self.update, batch, scalars, accumulate=cfg.accumulate, **static)
                updates += 1
            if cfg.target_kl is not None and self.learner.last("policy/kl") > cfg.target_kl:
                break
        return Report(updates=updates, metrics={**self.learner.metrics(), "policy_lr": scalars["lr"]})

    def update(self, nets: Networks, batch: Batch, c: Scalars, *, whole: bool, normalize: bool) -> Metrics:
        """One optimizer step on a minibatch."""
        loss, metrics = self.loss(nets.policy, prepared(batch, normalize=normalize) if whole else batch, c)
        nets.step("policy", loss, c["lr"], memory=c.get("memory_lr"))
        return {**metrics, "loss/total": loss}

    def loss(self, policy: PolicyNetwork, batch: Batch, c: Scalars) -> tuple[Tensor, Metrics]:
        """Weighted clipped surrogate + value error - entropy bonus, of a prepared minibatch."""
        params, value, _ = policy(batch["obs"], batch["state"], batch["first"])
        log_ratio = policy.distribution.log_prob(params, batch["action"]) - batch["log_prob"]
        ratio, share = log_ratio.exp(), batch["share"]
        policy_loss = clipped_surrogate(ratio, batch["weight"] * batch["advantage"] * share, c["clip"])
        value_loss = 0.5 * weighted_mean((value - batch["target"]).square(), share)
        entropy = weighted_mean(policy.distribution.entropy(params), share)
        loss = policy_loss + c["value_coef"] * value_loss - c["entropy_coef"] * entropy
        with torch.no_grad():
            kl = weighted_mean(ratio - 1 - log_ratio, share)
            clipped = weighted_mean(((ratio - 1).abs() > c["clip"]).float(), share)
        return loss, {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "policy/entropy": entropy,
            "policy/kl": kl,
            "policy/clip_fraction": clipped,
        }


def prepared(batch: Batch, *, normalize: bool) -> Batch:
    """A minibatch with what only the whole of it can tell: normalised advantages, and the `share` of each step.

    Shares have a mean of 1 and leave out slots with a final observation, so that means are means over steps.
    """
    used = batch["used"]
    share = used / used.sum().clamp(min=1) * used.numel()
    return {
        **batch,
        "share": share,
        "advantage": normalized(batch["advantage"], used) if normalize else batch["advantage"],
    }
