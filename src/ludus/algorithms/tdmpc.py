"""TD-MPC 1 and 2 (Hansen et al., arXiv:2203.04955, 2310.16828): planning in a latent space, with values at the horizon.

Reading order: TDMPCConfig -> collect -> update -> model_loss -> policy_loss -> Planner.plan -> math/planning.py.
`variant` names a published set of switches; every one of them can be set on its own.

Shapes: H horizon, B sequences or environments, K candidates, N = B * K, Z latent, A action, M critics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ludus.acting.actor import Actor, Outputs
from ludus.acting.behaviour import Behaviour
from ludus.acting.exploration import Level, UniformActions, check_bounded, unit_space
from ludus.algorithms import Algorithm, Context, Hook, PhaseContext
from ludus.algorithms._ratio import Replay, UpdateRatioConfig
from ludus.components.around_plan import AroundPlan, PlanConfig
from ludus.components.implicit_model import ImplicitModel, ImplicitModelConfig, LatentCritics
from ludus.components.latent_view import LatentView
from ludus.components.policy_prior import PriorConfig, make_prior
from ludus.components.running_range import RunningRange, moved_width
from ludus.config.schedule import NonNegativeSchedule, PositiveSchedule, UnitSchedule, constant
from ludus.data.buffers.batches import check_length, priorities
from ludus.data.buffers.rows import blank_steps
from ludus.data.buffers.sampling import Sample, tensors
from ludus.learning.compiled_part import CompiledPart
from ludus.learning.learner import Batch, Group, Learner, Metrics, Networks, Scalars
from ludus.learning.optimizer import OptimizerConfig
from ludus.learning.rehearsal import Rehearsal
from ludus.math.planning import moved_on, path_integral
from ludus.math.values import episode_discount
from ludus.registry import ALGORITHMS
from ludus.types import Array, Report, Stateful, Tree, to_device, tree_index, tree_map

WIDTHS = ("latent", "units", "encoder_units", "encoder_layers", "critics")
SIZES = {
    "tiny": (64, 128, 128, 1, 2),
    "1m": (128, 384, 256, 1, 2),
    "5m": (512, 512, 256, 1, 5),
    "19m": (768, 1024, 1024, 2, 5),
    "48m": (768, 1792, 1792, 3, 5),
    "317m": (1376, 4096, 4096, 4, 8),
    "v1": (50, 512, 256, 1, 2),
}
"""`WIDTHS` as in TD-MPC2, where the 5m model is the default; `v1` is that of TD-MPC, `tiny` is ours."""
VARIANTS: dict[str, dict[str, Any]] = {
    "v2": {},
    "v1": {
        "size": "v1", "layers": "plain", "simplex": 0, "dropout": 0.0, "bins": 0, "episodic": False,
        "horizon": 5, "consistency_target": "slow", "consistency_scale": 2.0, "reward_scale": 0.5,
        "value_scale": 0.2,  # 0.1 for each of two critics
        "gamma": 0.99, "slow_every": 2, "batch_size": 512, "learning_starts": 5_000, "lr": 1e-3,
        "encoder_lr_scale": 1.0, "max_grad_norm": 10.0,
        "policy": "deterministic", "policy_value": "least", "value_normalization": False, "entropy_coef": 0.0,
        "policy_candidates": 25, "momentum": 0.1, "min_std": {"start": 0.5, "end": 0.05, "to": 25_000},
        "planning_horizon": {"start": 1.0, "end": 5.0, "to": 25_000},
    },
}  # fmt: skip
"""Departures of each variant from the defaults, which are those of TD-MPC2."""


class TDMPCConfig(ImplicitModelConfig, PriorConfig, PlanConfig, UpdateRatioConfig):
    """Planning in a latent space that predicts itself, rewards and values."""

    fixed = (
        frozenset({*ImplicitModelConfig.model_fields, *PriorConfig.model_fields, *PlanConfig.model_fields})
        | {"variant", "size", "horizon", "consistency_target", "policy_value", "value_normalization", "episode_steps"}
        | {"batch_size", "update_ratio", "epoch_steps", "max_grad_norm", "optimizer", "actor_optimizer"}
    ) - {"min_std", "planning_horizon"}
    search = {"lr": "loguniform(1e-4,1e-3)", "horizon": "3,5", "tau": "0.005,0.01,0.02", "update_ratio": "0.5,1.0"}

    variant: Literal["v1", "v2"] = "v2"
    """Which published set of switches fills in what the config does not say."""
    size: Literal["tiny", "1m", "5m", "19m", "48m", "317m", "v1"] = "1m"
    """Which published widths fill in what the config does not say."""
    horizon: PositiveInt = 3
    """Steps that latent states are predicted ahead, in learning and in plans."""
    rho: UnitSchedule = constant(0.5)
    """Weight of each later step relative to the one before."""
    consistency_target: Literal["encoder", "slow"] = "encoder"
    """What predicted latent states are to equal: those of the encoder, or of its slow copy."""
    consistency_scale: NonNegativeSchedule = constant(20.0)
    """Weight of the latent states' loss."""
    reward_scale: NonNegativeSchedule = constant(0.1)
    """Weight of the reward's loss."""
    value_scale: NonNegativeSchedule = constant(0.1)
    """Weight of the critics' mean loss."""
    gamma: Literal["auto"] | UnitSchedule = "auto"
    """Discount; `auto` follows the length of episodes: 1 - 5 / steps, between 0.95 and 0.995."""
    episode_steps: PositiveInt | None = None
    """Decisions in an episode; none: the environment's time limit."""
    tau: UnitSchedule = constant(0.01)
    """How far slow copies move at each of their updates."""
    slow_every: PositiveInt = 1
    """Updates between two of the slow copies."""
    policy_value: Literal["mean", "least"] = "mean"
    """Which value of two critics the policy and plans go by; targets always take the least."""
    value_normalization: bool = True
    """Divide values in the policy's loss by their range from the 5th to the 95th percentile, if that is more than 1."""
    entropy_coef: NonNegativeSchedule = constant(1e-4)
    """Weight of the policy's entropy."""
    batch_size: PositiveInt = 256
    """Sequences of `horizon` steps per update."""
    lr: PositiveSchedule = constant(3e-4)
    """Learning rate."""
    encoder_lr_scale: NonNegativeSchedule = constant(0.3)
    """The encoder's learning rate in shares of `lr`."""
    max_grad_norm: float | None = Field(default=20.0, gt=0)
    """Largest gradient norm of model and critics together, and of the policy; none: no clipping."""
    optimizer: OptimizerConfig = OptimizerConfig(eps=1e-8)
    """Optimizer of model and critics."""
    actor_optimizer: OptimizerConfig = OptimizerConfig(eps=1e-5)
    """Optimizer of the policy."""

    @model_validator(mode="before")
    @classmethod
    def fill_in(cls, given: Any) -> Any:
        """Take what is not said from `variant` and `size`."""
        if not isinstance(given, Mapping):
            return given
        named = {**VARIANTS.get(str(given.get("variant", "v2")), {}), **given}
        size = SIZES.get(str(named.get("size", "1m")))
        return named if size is None else {**dict(zip(WIDTHS, size, strict=True)), **named}

    def full_batch(self, num_envs: int) -> int:
        return self.batch_size * (self.horizon + 1)

    @property
    def compiling_pays_from(self) -> int:
        return 4_000


@ALGORITHMS.register("tdmpc")
class TDMPC(Algorithm):
    """A latent model, critics and a policy; every action is planned with all three."""

    Config = TDMPCConfig
    off_policy = True
    networks = frozenset()
    buffers = {"replay": {"type": "uniform", "size": "auto"}}

    def __init__(self, cfg: TDMPCConfig, context: Context) -> None:
        cfg.check(context.num_envs)
        space = context.spaces.action
        check_bounded("tdmpc", space, discrete=False)
        self.cfg, self.collector, self.default_cycle = cfg, context.collector, cfg.cycle
        self.epoch_steps, self.device, self.spaces = cfg.epoch_steps, context.device, context.spaces
        world = ImplicitModel(cfg, context.spaces, context.precision)
        actor = make_prior(cfg, cfg.latent, world.action_dim, cfg.units, cfg.hidden)
        networks = {"world": world, "critic": LatentCritics(cfg, world), "actor": actor}
        model = Group(("world", "critic"), cfg.optimizer, cfg.max_grad_norm, rates={"encoder_lr": ("encoder.",)})
        self.slow = ("critic", "world") if cfg.consistency_target == "slow" else ("critic",)
        self.learner = Learner(
            {name: network.to(self.device) for name, network in networks.items()},
            {"model": model, "actor": Group(("actor",), cfg.actor_optimizer, cfg.max_grad_norm)},
            targets=self.slow,
            generator=context.rng,
            compiler=context.compiler,
        )
        limit = None if self.collector is None else self.collector.env.max_episode_steps
        self.auto_gamma = episode_discount(cfg.episode_steps or limit)
        self.world = LatentView(world, context.spaces, cfg.latent)
        self.scale = RunningRange(torch.ones((), device=self.device))
        begun = {"gamma": self.auto_gamma, "min_std": cfg.min_std.end, "horizon": float(cfg.horizon)}
        self.levels = {name: Level(value) for name, value in begun.items()}
        planner = Planner(cfg, networks, self.levels, context)
        self.value_of = lambda features: planner.worth.expected(features[..., : cfg.latent])
        self.behaviour = Behaviour(
            planner,
            AroundPlan(space),
            blind=UniformActions(unit_space(space)),
            rng=context.rng,
            evaluation_rng=context.evaluation_rng,
        )
        self.replay = Replay(context, self.learner, self.behaviour)

    def hooks(self) -> dict[str, Hook]:
        return {"collect": self.collect, "update": self.update}

    def state(self) -> dict[str, Stateful]:
        return {"learner": self.learner, "scale": self.scale, **self.levels}

    @property
    def discount(self) -> float:  # type: ignore[override]
        return self.levels["gamma"].value

    def check(self, cfg: TDMPCConfig, buffer: str | None) -> None:
        check_length(self.replay[buffer], cfg.horizon + 1, 1, "algorithm.horizon")

    def activations(self, cfg: TDMPCConfig, rehearsal: Rehearsal) -> int:
        blank = (self._batch(blank_steps(self.spaces, size, cfg.horizon)) for size in (1, 2))
        one, two = (rehearsal.kept(self.learn, batch, defaultdict(float)) for batch in blank)
        return one + (cfg.batch_size - 1) * (two - one)

    def metrics(self) -> dict[str, float]:
        return {**self.statistics(), **self.learner.metrics()}

    # ---- hooks -----------------------------------------------------------------------------------

    def collect(self, now: PhaseContext) -> Report:
        """A few planned steps into the buffer; random ones until there is something to learn from."""
        self.levels["gamma"].value = self._gamma(now)
        self.levels["min_std"].value = now.at(now.cfg.min_std)
        if now.cfg.planning_horizon is not None:
            self.levels["horizon"].value = now.at(now.cfg.planning_horizon)
        return self.replay.collect(self.rollout, now)

    def update(self, now: PhaseContext) -> Report:
        """One step of model and critics, then one of the policy."""
        cfg, buffer = now.cfg, self.replay[now.buffer]
        if not self.replay.has_enough(now, cfg.horizon):
            return Report()
        buffer.at(now.position, now.total)
        sample = buffer.sample_sequences(cfg.batch_size, cfg.horizon)
        batch = self._batch(sample)
        schedules = ("lr", "rho", "consistency_scale", "reward_scale", "value_scale", "entropy_coef")
        scalars = {name: now.at(getattr(cfg, name)) for name in schedules}
        scalars |= {"encoder_lr": now.at(cfg.encoder_lr_scale) * scalars["lr"], "gamma": self._gamma(now)}
        scalars["tau"] = now.at(cfg.tau) if (self.learner.updates + 1) % cfg.slow_every == 0 else 0.0
        found = self.learner.update(self.learn, batch, scalars)
        self.scale.value = found["scale"]
        if buffer.has_priorities:
            buffer.update_priorities(sample["index"], priorities(found["error"]))
        return Report(updates=1)

    def _batch(self, sample: Sample) -> Batch:
        names = ("obs", "action", "reward", "terminated", "mask", "weight", "first")
        return {**tensors({name: sample[name] for name in names}, self.device), "scale": self.scale.value}

    def _gamma(self, now: PhaseContext) -> float:
        return self.auto_gamma if now.cfg.gamma == "auto" else now.at(now.cfg.gamma)

    # ---- learning --------------------------------------------------------------------------------

    def learn(self, nets: Networks, batch: Batch, c: Scalars) -> tuple[Metrics, dict[str, Tensor]]:
        """Model and critics together; then the policy, on the latent states that the model predicted."""
        horizon, size = batch["reward"].shape
        alive = batch["mask"].float().cumprod(0)  # steps after the end of an episode do not count
        rho = (c["rho"] ** torch.arange(horizon + 1, device=alive.device)).unsqueeze(1)
        batch = {**batch, "alive": alive, "rho": rho}
        noise = nets.noise((2 * horizon + 1, size, nets.world.action_dim))
        pairs = nets.noise((2, nets.critic.members)).topk(min(2, nets.critic.members)).indices  # two critics, at random
        loss, z, error, metrics = self.model_loss(nets, batch, c, noise[:horizon], pairs[0])
        nets.step("model", loss, c["lr"], encoder_lr=c["encoder_lr"])
        actor_loss, scale, more = self.policy_loss(nets, z.detach(), batch, c, noise[horizon:], pairs[1])
        nets.step("actor", actor_loss, c["lr"])
        for name in self.slow:
            nets.polyak(name, c["tau"])
        return {**metrics, **more}, {"scale": scale, "error": error}

    def model_loss(
        self, nets: Networks, batch: Batch, c: Scalars, noise: Tensor, pair: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Metrics]:
        """(loss, predicted latent states [H + 1, B, Z], errors of values [H, B], metrics) of model and critics."""
        world, coding = nets.world, nets.world.coding
        now, later = (tree_map(lambda leaf, rows=rows: leaf[rows], batch["obs"]) for rows in (slice(1), slice(1, None)))
        action, ended = world.act_vector(batch["action"]), batch["terminated"].float()
        with torch.no_grad():  # r + gamma * the lesser of two slow critics, at what the policy would do next
            reached = world.encode(later)
            value = nets.target_critic.value(reached, nets.actor(reached, noise)[0], pair, least=True)
            target = batch["reward"] + c["gamma"] * (1 - ended) * value
            if "world" in self.slow:
                reached = nets.target_world.encode(later)
        z = world.follow(world.encode(now)[0], action)
        seen = torch.cat([z[:-1], action], -1)
        q_MHB = nets.critic(seen, dropped=nets.critic.dropped(nets.noise, target.numel()))
        counts = batch["alive"] * batch["weight"]
        weight = counts * batch["rho"][:-1]
        means = {
            "consistency": (weight * (z[1:] - reached).square().mean(-1)).mean(),
            "reward": (weight * coding.loss(world.reward(seen), batch["reward"])).mean(),
            "value": (weight * coding.loss(q_MHB, target.expand(len(q_MHB), *target.shape))).mean(),
        }
        total = torch.stack([c[f"{name}_scale"] * loss for name, loss in means.items()]).sum()
        if world.ends is not None:
            ends = binary_cross_entropy_with_logits(world.ends(z[1:]).squeeze(-1), ended, reduction="none")
            means["ends"] = (counts * ends).mean()
            total = total + means["ends"]
        error = (coding.mean(q_MHB.detach()).mean(0) - target).abs() * batch["alive"]
        metrics = {f"loss/{name}": loss.detach() for name, loss in means.items()}
        return total, z, error, {"loss/model": total.detach(), **metrics, "policy/target": target.mean()}

    def policy_loss(
        self, nets: Networks, z: Tensor, batch: Batch, c: Scalars, noise: Tensor, pair: Tensor
    ) -> tuple[Tensor, Tensor, Metrics]:
        """(loss, scale of values, metrics) of the policy: up the critics, and towards entropy."""
        action, entropy = nets.actor(z, noise)
        q = nets.critic.value(z, action, pair, least=self.cfg.policy_value == "least")
        scale = moved_width(batch["scale"], q[0].detach()) if self.cfg.value_normalization else batch["scale"]
        weight = batch["rho"] * torch.cat([torch.ones_like(q[:1]), batch["alive"]])
        loss = -(weight * (q / scale + c["entropy_coef"] * entropy)).mean()
        metrics = {"loss/actor": loss, "policy/q": q.mean(), "policy/entropy": entropy.mean(), "policy/scale": scale}
        return loss, scale, {name: value.detach() for name, value in metrics.items()}


# ---- planning --------------------------------------------------------------------------------------


class Worth(nn.Module):
    """What sequences of actions are worth."""

    def __init__(self, networks: Mapping[str, Any], *, least: bool) -> None:
        super().__init__()
        self.world, self.critic, self.actor = (networks[name] for name in ("world", "critic", "actor"))
        self.least = least

    def forward(self, z_NZ: Tensor, actions_HNA: Tensor, noise_NA: Tensor, pair: Tensor, gamma: Tensor) -> Tensor:
        """Discounted rewards [N] and the value of what follows, each times the chance to get there."""
        states = self.world.follow(z_NZ, actions_HNA)
        rewards = self.world.coding.mean(self.world.reward(torch.cat([states[:-1], actions_HNA], -1)))
        value = self.critic.value(states[-1], self.actor(states[-1], noise_NA)[0], pair, least=self.least)
        reach = (gamma * self.world.lives(states[1:])).cumprod(0)
        return rewards[0] + (reach[:-1] * rewards[1:]).sum(0) + reach[-1] * value

    def expected(self, z: Tensor) -> Tensor:
        """Value [...] of what the policy does in latent states, by the first two critics."""
        action, _ = self.actor(z, z.new_zeros(*z.shape[:-1], self.world.action_dim))
        return self.critic.value(z, action, torch.arange(min(2, self.critic.members)), least=self.least)


class Planner(Actor):
    """An actor that plans; where the next plan begins is its memory."""

    recurrent = True

    def __init__(self, cfg: TDMPCConfig, networks: dict[str, Any], levels: dict[str, Level], context: Context) -> None:
        self.cfg, self.levels, self.training = cfg, levels, context.rng
        self.worth = Worth(networks, least=cfg.policy_value == "least")
        self.compiled = CompiledPart(self.worth, context.compiler, cfg.full_batch(context.num_envs))
        self.world, self.device, self.size = self.worth.world, context.device, self.worth.world.action_dim

    def refresh(self) -> None:
        """Nothing to copy."""

    def initial_state(self, batch: int) -> Tree:
        """Nothing planned yet."""
        return {"plan": torch.zeros(batch, self.cfg.horizon, self.size, device=self.device)}

    @torch.no_grad()
    def __call__(
        self, obs_B: Array, state: Tree, first_B: Array, rng: np.random.Generator | None = None
    ) -> tuple[Outputs, Tree]:
        obs, first = to_device((obs_B, first_B), self.device)
        after = {"plan": moved_on(state["plan"], first)}
        known: dict[str, Array] = {}

        def read(_: None, head: str) -> Array:
            found = self.plan(self.world.encode(tree_index(obs, None))[0], after["plan"], rng)
            after["plan"] = found.pop("next")
            known.update({name: tensor.cpu().numpy() for name, tensor in found.items()})
            return known[head]

        return Outputs(len(first_B), ("plan", "std", "value"), read=read, known=known), after  # random steps need none

    @torch.no_grad()
    def plan(self, z: Tensor, start: Tensor, rng: np.random.Generator | None) -> dict[str, Tensor]:
        """`plan` and `std` [B, A] of the action now, `value` [B], and the whole plan `next` [B, H, A].

        Without a random stream the action is the mean of the plan, else one of the best sequences, by their weights.
        """
        cfg, batch, stream = self.cfg, len(z), rng or np.random.default_rng(0)
        horizon = min(max(int(self.levels["horizon"].value), 1), cfg.horizon)
        rounds, own = cfg.rounds + 2 * (self.size >= 20), cfg.candidates - cfg.policy_candidates
        shapes = ((rounds, horizon, batch, own), (horizon, batch, cfg.policy_candidates), (batch, cfg.candidates))
        drawn = (stream.standard_normal((*shape, self.size), np.float32) for shape in shapes)
        noise, ideas, last = (torch.from_numpy(numbers).to(self.device) for numbers in drawn)
        pair = torch.from_numpy(stream.permutation(self.worth.critic.members)[:2]).to(self.device)
        gamma = torch.tensor(self.levels["gamma"].value, device=self.device)
        worth = self.compiled if rng is self.training else self.worth  # players have no compiled code
        starts, last = z.repeat_interleave(cfg.candidates, 0), last.flatten(0, 1)

        def score(actions_HBKA: Tensor) -> Tensor:
            return worth(starts, actions_HBKA.flatten(1, 2), last, pair, gamma).view(batch, -1)

        found = path_integral(
            score, noise, start[:, :horizon].transpose(0, 1), elites=cfg.elites, max_std=cfg.max_std,
            min_std=self.levels["min_std"].value, temperature=cfg.temperature, momentum=cfg.momentum,
            proposals=self.proposals(z, ideas),
        )  # fmt: skip
        chosen = found.mean[0]
        if rng is not None:
            chance = torch.from_numpy(stream.random((batch, 1), np.float32)).to(self.device)
            pick = (found.weight.cumsum(1) < chance).sum(1).clamp(max=cfg.elites - 1)
            chosen = found.best[0, torch.arange(batch, device=self.device), pick]
        rest = start.new_zeros(batch, cfg.horizon - horizon, self.size)
        whole = torch.cat([found.mean.transpose(0, 1), rest], 1)
        return {"plan": chosen, "std": found.std[0], "value": found.value, "next": whole}

    def proposals(self, z: Tensor, noise_HBPA: Tensor) -> Tensor | None:
        """What the policy would do, [H, B, P, A]."""
        count, actions = noise_HBPA.shape[2], []
        if not count:
            return None
        z = z.repeat_interleave(count, 0)
        for noise in noise_HBPA.flatten(1, 2).unbind():
            actions.append(self.worth.actor(z, noise)[0])
            z = self.world.dynamics(torch.cat([z, actions[-1]], -1))
        return torch.stack(actions).unflatten(1, (-1, count))
