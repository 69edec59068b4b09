"""Dreamer 1, 2 and 3 (Hafner et al., arXiv:1912.01603, 2010.02193, 2301.04104): a policy learned in imagination.

Reading order: DreamerConfig -> update -> world_loss -> dream -> controller_losses.
`variant` names a published set of switches; every one of them can be set on its own.

Shapes: T rows, B sequences, N = T * B imagined trajectories, H horizon, F features, A action.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from ludus.acting.behaviour import Behaviour
from ludus.acting.exploration import Level, UniformActions, check_bounded, unit_space
from ludus.algorithms import Algorithm, Context, Hook, PhaseContext
from ludus.algorithms._dreamer_variants import LAPROP, VARIANTS
from ludus.algorithms._world import WorldConfig, WorldReplay, named_settings
from ludus.components.actor import WorldActorConfig, WorldPolicy
from ludus.components.numpy_player import make_player
from ludus.components.representation import LatentState, Observed
from ludus.components.running_range import RunningRange, moved_ends
from ludus.components.world_model import WorldModel
from ludus.components.world_player import Heads, SampleWorldPolicy
from ludus.config.model import Choice, Registered
from ludus.config.schedule import NonNegativeSchedule, PositiveSchedule, UnitSchedule, constant
from ludus.learning.learner import Batch, Group, Learner, Metrics, Networks, Outputs, Scalars, UpdateFunction
from ludus.learning.optimizer import OptimizerConfig
from ludus.learning.rehearsal import Rehearsal
from ludus.math.values import lambda_returns, replayed_lambda_returns
from ludus.registry import ALGORITHMS, PREDICTORS
from ludus.types import Report, Stateful, tree_map

VALUE = Registered(PREDICTORS, default="two_hot")
STATIC = ("horizon", "imagine_last", "actor_gradient", "return_normalization", "slow_critic", "replay_critic_scale")
"""Switches of `controller_losses`."""


class DreamerConfig(WorldConfig):
    """A policy learned in the imagination of a world model."""

    fixed = WorldConfig.fixed | {"variant", "critic", "actor", "fused", "slow_critic"}
    search = {**WorldConfig.search, "entropy_coef": "1e-4,3e-4,1e-3,3e-3", "horizon": "10,15"}

    variant: Literal["v1", "v2", "v3"] = "v3"
    """Which published set of switches fills in what the config does not say."""
    critic: Annotated[Choice, VALUE] = VALUE.parse({"layers": 3})
    """Features -> value."""
    actor: WorldActorConfig = WorldActorConfig()
    """Features -> policy."""
    horizon: PositiveInt = 15
    """Imagined steps."""
    imagine_last: PositiveInt | None = None
    """Imagine only from the last rows of each sequence; none: from all."""
    gamma: UnitSchedule = constant(1 - 1 / 333)
    """Discount; the continuation head predicts it times the chance to go on."""
    lam: UnitSchedule = constant(0.95)
    """Lambda of imagined returns."""
    actor_gradient: Literal["reinforce", "dynamics", "both"] = "reinforce"
    """How returns reach the policy: by log-probabilities, through the world model, or mixed."""
    actor_mix: UnitSchedule = constant(0.1)
    """Share of `reinforce` in `both`."""
    entropy_coef: NonNegativeSchedule = constant(3e-4)
    """Weight of the policy's entropy."""
    return_normalization: bool = True
    """Divide returns by their range from the 5th to the 95th percentile, if that is more than 1."""
    slow_critic: Literal["regularizer", "target", "none"] = "regularizer"
    """What a slow copy of the critic is for: keep the critic near it, or bootstrap from it."""
    tau: UnitSchedule = constant(0.02)
    """How far the slow critic moves at each of its updates."""
    slow_every: PositiveInt = 1
    """Updates between two of the slow critic."""
    replay_critic_scale: float = Field(default=0.3, ge=0)
    """Weight of the critic's loss on replayed rewards; in a fused update it trains the world model too."""
    fused: bool = True
    """One update of everything (hook `update`), or the world model first and then the controller."""
    actor_lr: PositiveSchedule | None = None
    """Learning rate of the actor; none: `lr`."""
    critic_lr: PositiveSchedule | None = None
    """Learning rate of the critic; none: `lr`."""
    optimizer: OptimizerConfig = OptimizerConfig.model_validate(LAPROP)
    """Optimizer of world model, actor and critic, one each."""

    @model_validator(mode="before")
    @classmethod
    def fill_in(cls, given: Any) -> Any:
        """Take what is not said from `variant` and `size`."""
        variant = str(given.get("variant", "v3")) if isinstance(given, Mapping) else "v3"
        named = {"critic": {"layers": 3}, "optimizer": LAPROP}
        return named_settings(given, cls.model_fields, named, VARIANTS.get(variant, {}))

    @property
    def updating(self) -> tuple[str, ...]:
        return ("update",) if self.fused else ("update_world_model", "update_controller")


class Dream(NamedTuple):
    """Imagined trajectories; index 0 is the replayed state."""

    features: Tensor
    """[H + 1, N, F]"""
    params: Tensor
    """[H, N, P] of the policy, with its gradient."""
    drawn: Tensor
    """[H, N, ...] actions."""


@ALGORITHMS.register("dreamer")
class Dreamer(Algorithm):
    """World model, actor and critic; the actor and the critic see imagined trajectories only."""

    Config = DreamerConfig
    data_parallel = True
    off_policy = True
    buffers = {"replay": {"type": "online", "size": "auto"}}
    networks = frozenset()

    def __init__(self, cfg: DreamerConfig, context: Context) -> None:
        check_bounded("dreamer", context.spaces.action, discrete=True)
        self.collector, self.default_cycle, self.epoch_steps = context.collector, cfg.cycle, cfg.epoch_steps
        world = WorldModel(cfg, context.spaces, context.precision).to(context.device)
        features = world.representation.feature_dim
        actor = WorldPolicy(cfg.actor, features, context.spaces.action).to(context.device)
        critic = PREDICTORS[cfg.critic.name](cfg.critic.config, features).to(context.device)
        networks = {"world": world, "actor": actor, "critic": critic}
        self.learner = Learner(
            networks,
            {name: Group((name,), cfg.optimizer, cfg.max_grad_norm) for name in networks},
            targets=() if cfg.slow_critic == "none" else ("critic",),
            generator=context.rng,
            compiler=context.compiler,
            whole=False,
        )
        self.scale = RunningRange(torch.zeros(2, device=context.device))
        self.explores = Level(cfg.exploration.start)
        self.world, self.value_of = world, lambda features: critic.mean(critic(features))
        heads: Heads = {"actor": actor, "critic": self.value_of}
        self.behaviour = Behaviour(
            make_player(world, heads),
            SampleWorldPolicy(actor.distribution, context.spaces.action, self.explores),
            blind=UniformActions(unit_space(context.spaces.action)),
            rng=context.rng,
            evaluation_rng=context.evaluation_rng,
        )
        self.replay = WorldReplay(context, self.learner, self.behaviour, self.explores)
        self._seen: deque[Batch] = deque()  # what the world model saw in this cycle, for the controller
        self._cycle = -1

    def hooks(self) -> dict[str, Hook]:
        """`collect`, then `update`, or world model and controller in turn."""
        return {
            "collect": self.collect,
            "update": self.update_everything,
            "update_world_model": self.update_world_model,
            "update_controller": self.update_controller,
        }

    def state(self) -> dict[str, Stateful]:
        """Weights, slow critic and moments; the range of returns; the noise of exploration now."""
        return {"learner": self.learner, "scale": self.scale, "explores": self.explores}

    def check(self, cfg: DreamerConfig, buffer: str | None) -> None:
        self.replay.check(cfg, buffer)

    def activations(self, cfg: DreamerConfig, rehearsal: Rehearsal) -> int:
        def kept(function: UpdateFunction, batch: Batch, horizon: int) -> int:
            how = {**self._static(cfg), "horizon": horizon, "imagine_last": None}
            return rehearsal.kept(function, {**batch, "scale": self.scale.value}, defaultdict(float), **how)

        functions = [self.update] if cfg.fused else [self.learn_world, self.learn_controller_alone]
        sizes = cfg.horizon, min(cfg.imagine_last or cfg.sequence_length, cfg.sequence_length)
        return max(self.replay.activations(cfg, partial(kept, function), *sizes) for function in functions)

    def metrics(self) -> dict[str, float]:
        return {**self.statistics(), **self.learner.metrics()}

    # ---- hooks -----------------------------------------------------------------------------------

    def collect(self, now: PhaseContext) -> Report:
        """A few steps into the buffer; random ones until there is something to learn from."""
        return self.replay.collect(self.rollout, now)

    def update_everything(self, now: PhaseContext) -> Report:
        """One step of world model, actor and critic on the same rows."""
        batch = self.replay.rows(now)
        if batch is None:
            return Report()
        batch["scale"] = self.scale.value
        found = self.learner.update(self.update, batch, self._scalars(now), **self._static(now.cfg))
        self.scale.value = found["scale"]
        return Report(updates=1)

    def update_world_model(self, now: PhaseContext) -> Report:
        """One step of the world model; the controller goes on from the states it saw."""
        batch = self.replay.rows(now)
        if batch is None:
            return Report()
        if self._cycle != now.cycle:
            self._seen.clear()
            self._cycle = now.cycle
        found = self.learner.update(self.learn_world, batch, self._scalars(now))
        self._seen.append({**{name: batch[name] for name in ("reward", "last", "terminal", "first")}, **found})
        return Report(updates=1)

    def update_controller(self, now: PhaseContext) -> Report:
        """One step of actor and critic, from what the world model saw in this cycle, or else from fresh rows."""
        if self._cycle == now.cycle and self._seen:
            function, batch = self.learn_controller, self._seen.popleft()
        else:
            found = self.replay.rows(now)
            if found is None:
                return Report()
            function, batch = self.learn_controller_alone, found
        batch = {**batch, "scale": self.scale.value}
        outputs = self.learner.update(function, batch, self._scalars(now), **self._static(now.cfg))
        self.scale.value = outputs["scale"]
        return Report(updates=1)

    def _scalars(self, now: PhaseContext) -> dict[str, float]:
        cfg: DreamerConfig = now.cfg
        world, critic = (self.learner.groups[name].optimizer.count for name in ("world", "critic"))
        warm = cfg.warm(critic)  # the controller counts its own updates: the world model may be far ahead
        return {
            "lr": cfg.warm(world) * now.at(cfg.lr),
            "actor_lr": warm * now.at(cfg.actor_lr or cfg.lr),
            "critic_lr": warm * now.at(cfg.critic_lr or cfg.lr),
            "gamma": now.at(cfg.gamma),
            "lam": now.at(cfg.lam),
            "entropy": now.at(cfg.entropy_coef),
            "mix": now.at(cfg.actor_mix),
            "tau": now.at(cfg.tau) if (critic + 1) % cfg.slow_every == 0 else 0.0,
        }

    def _static(self, cfg: DreamerConfig) -> dict[str, Any]:
        return {**{name: getattr(cfg, name) for name in STATIC}, "entropy": cfg.entropy_coef != constant(0.0)}

    # ---- learning --------------------------------------------------------------------------------

    def update(self, nets: Networks, batch: Batch, c: Scalars, **how: Any) -> tuple[Metrics, Outputs]:
        """Everything at once: the critic's loss on replayed rewards shapes the world model too (Dreamer 3)."""
        loss, seen, metrics = self.world_loss(nets, batch, c)
        states = tree_map(Tensor.detach, seen.states)
        actor_loss, critic_loss, returns, more, scale = self.controller_losses(nets, batch, states, c, **how)
        if how["replay_critic_scale"]:
            replayed = self.replayed_loss(nets, seen.features, batch, returns, c, how["slow_critic"])
            loss = loss + how["replay_critic_scale"] * replayed
        # each network is stepped after the last gradient that flows through it
        nets.step("actor", actor_loss, c["actor_lr"])
        nets.step("world", loss, c["lr"])
        nets.step("critic", critic_loss, c["critic_lr"])
        nets.polyak("critic", c["tau"])
        return {**metrics, **more}, {"scale": scale}

    def learn_world(self, nets: Networks, batch: Batch, c: Scalars, **_: Any) -> tuple[Metrics, Outputs]:
        """The world model alone; its states are for the controller."""
        loss, seen, metrics = self.world_loss(nets, batch, c)
        nets.step("world", loss, c["lr"])
        return metrics, {name: state.detach() for name, state in seen.states.items()}

    def learn_controller(self, nets: Networks, batch: Batch, c: Scalars, **how: Any) -> tuple[Metrics, Outputs]:
        """Actor and critic, from states that the world model saw."""
        states = {name: batch[name] for name in nets.world.representation.initial_state(1)}
        actor_loss, critic_loss, _, metrics, scale = self.controller_losses(nets, batch, states, c, **how)
        nets.step("actor", actor_loss, c["actor_lr"])
        nets.step("critic", critic_loss, c["critic_lr"])
        nets.polyak("critic", c["tau"])
        return metrics, {"scale": scale}

    def learn_controller_alone(self, nets: Networks, batch: Batch, c: Scalars, **how: Any) -> tuple[Metrics, Outputs]:
        """Actor and critic, from rows that the world model sees without learning from them."""
        world, first_TB = nets.world, batch["first"]
        with torch.no_grad():
            noise = nets.noise((*first_TB.shape, world.representation.noise_dim))
            blank = world.representation.initial_state(first_TB.shape[1])
            seen = world.observe(batch["obs"], world.act_vector(batch["action"]), first_TB, blank, noise)
        return self.learn_controller(nets, {**batch, **seen.states}, c, **how)

    def world_loss(self, nets: Networks, batch: Batch, c: Scalars) -> tuple[Tensor, Observed, Metrics]:
        """(loss, what was seen, metrics) of the world model."""
        noise = nets.noise((*batch["first"].shape, nets.world.representation.noise_dim))
        return nets.world.losses(batch, noise, c["gamma"])

    def dream(self, nets: Networks, states: LatentState, *, horizon: int, through: bool) -> Dream:
        """Trajectories [H + 1, N] from states [N, ...]; with `through`, gradients flow through the world to actions."""
        count = len(next(iter(states.values())))
        noise_H = nets.noise((horizon, count, nets.world.representation.noise_dim + nets.actor.noise_dim))
        features, params, drawn = [nets.world.features(states)], [], []
        for noise in noise_H.unbind():
            given = {**states, "features": features[-1], "noise": noise}
            found = dict(dream_step(nets, given) if through else nets.fixed(dream_step, given))
            features.append(found.pop("features"))
            params.append(found.pop("params"))
            drawn.append(found.pop("drawn"))
            states = found
        features_HNF = torch.stack(features)
        params_HNP = torch.stack(params) if through else nets.actor(features_HNF[:-1])
        return Dream(features_HNF, params_HNP, torch.stack(drawn).detach())

    def controller_losses(
        self,
        nets: Networks,
        batch: Batch,
        states_TB: LatentState,
        c: Scalars,
        *,
        horizon: int,
        imagine_last: int | None,
        actor_gradient: str,
        return_normalization: bool,
        slow_critic: str,
        replay_critic_scale: float,
        entropy: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Metrics, Tensor]:
        """(actor's loss, critic's loss, first returns [T, B], metrics, scale of returns)."""
        rows, through = slice(-(imagine_last or len(batch["first"])), None), actor_gradient != "reinforce"
        starts = {name: state[rows].flatten(0, 1) for name, state in states_TB.items()}
        dream = self.dream(nets, starts, horizon=horizon, through=through)

        values = nets.critic(dream.features.detach())
        judge = nets.target_critic if slow_critic == "target" else nets.critic
        with torch.set_grad_enabled(through):
            known = values.detach() if judge is nets.critic and not through else None
            reward_HN, discount_HN, value_HN, return_HN = self.dreamed_returns(nets, dream.features, judge, known, c)
        with torch.no_grad():
            alive_N = (~batch["terminal"][rows]).flatten().to(return_HN.dtype)
            weight_HN = torch.cat([alive_N.unsqueeze(0), discount_HN[:-1]]).cumprod(0)
            scale = moved_ends(batch["scale"], nets.whole(return_HN)) if return_normalization else batch["scale"]

        objective_HN, metrics = self.objective(nets, dream, (return_HN, value_HN, scale), c, actor_gradient, entropy)
        actor_loss = -(weight_HN * objective_HN).mean()

        critic_HN = self.critic_loss(nets, values[:-1], dream.features[:-1].detach(), return_HN.detach(), slow_critic)
        critic_loss = (weight_HN * critic_HN).mean()
        first_TB = return_HN[0].detach().unflatten(0, (-1, batch["first"].shape[1]))
        if replay_critic_scale:
            features = nets.world.features({name: state.detach() for name, state in states_TB.items()})
            replayed = self.replayed_loss(nets, features, batch, first_TB, c, slow_critic)
            critic_loss = critic_loss + replay_critic_scale * replayed
        metrics |= {
            "loss/actor": actor_loss.detach(),
            "loss/critic": critic_loss.detach(),
            "dream/return": return_HN.detach().mean(),
            "dream/reward": reward_HN.detach().mean(),
            "dream/value": value_HN.detach().mean(),
            "dream/discount": discount_HN.detach().mean(),
        }
        return actor_loss, critic_loss, first_TB, metrics, scale

    def dreamed_returns(
        self, nets: Networks, features_HNF: Tensor, judge: Any, known: Tensor | None, c: Scalars
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(rewards, discounts, values, returns); index t of the first two is that of the state after step t.

        `known` is what the critic that judges says about the features, if it was asked already.
        """
        ahead = features_HNF[1:]
        reward_HN = nets.world.reward.mean(nets.world.reward(ahead))
        discount_HN = nets.world.lives(ahead, c["gamma"])
        value_HN = judge.mean(judge(features_HNF) if known is None else known)
        return reward_HN, discount_HN, value_HN, lambda_returns(reward_HN, discount_HN, value_HN[1:], c["lam"])

    def objective(
        self,
        nets: Networks,
        dream: Dream,
        worth: tuple[Tensor, Tensor, Tensor],
        c: Scalars,
        actor_gradient: str,
        entropy: bool,
    ) -> tuple[Tensor, Metrics]:
        """What the actor increases, by likely actions that were worth it, through the dynamics, or by both.

        `worth` are returns, values and both ends of the scale of returns.
        """
        return_HN, value_HN, scale = worth
        spread = (scale[1] - scale[0]).clamp(min=1.0)
        objective_HN = torch.zeros_like(return_HN)
        if actor_gradient != "dynamics":
            advantage_HN = ((return_HN - value_HN[:-1]) / spread).detach()
            mix = c["mix"] if actor_gradient == "both" else 1.0
            objective_HN = mix * nets.actor.distribution.log_prob(dream.params, dream.drawn) * advantage_HN
        if actor_gradient != "reinforce":
            share = 1 - c["mix"] if actor_gradient == "both" else 1.0
            objective_HN = objective_HN + share * return_HN / spread
        if not entropy:
            return objective_HN, {}
        entropy_HN = nets.actor.distribution.entropy(dream.params)
        return objective_HN + c["entropy"] * entropy_HN, {"policy/entropy": entropy_HN.detach().mean()}

    def critic_loss(self, nets: Networks, values: Tensor, features: Tensor, target: Tensor, slow_critic: str) -> Tensor:
        """Loss [...] of the critic's outputs towards returns and, if it regularises, towards the slow critic."""
        loss = nets.critic.loss(values, target)
        if slow_critic == "regularizer":
            with torch.no_grad():
                slow = nets.target_critic.mean(nets.target_critic(features))
            loss = loss + nets.critic.loss(values, slow)
        return loss

    def replayed_loss(
        self, nets: Networks, features_TBF: Tensor, batch: Batch, bootstrap_TB: Tensor, c: Scalars, slow_critic: str
    ) -> Tensor:
        """The critic's loss on replayed rewards, which go on with imagined returns."""
        rows = slice(-len(bootstrap_TB), None)
        reward_TB, last_TB, terminal_TB = (batch[name][rows] for name in ("reward", "last", "terminal"))
        returns_TB = replayed_lambda_returns(reward_TB, last_TB, terminal_TB, bootstrap_TB, c["gamma"], c["lam"])
        features_TBF = features_TBF[rows][:-1]
        loss_TB = self.critic_loss(nets, nets.critic(features_TBF), features_TBF, returns_TB[:-1], slow_critic)
        return (loss_TB * ~last_TB[:-1]).sum() / max(1, loss_TB.numel())  # one row has no step to learn from


def dream_step(nets: Networks, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One imagined step of the actor: its action, the next state and features."""
    split = nets.world.representation.noise_dim
    states = {k: v for k, v in given.items() if k not in ("features", "noise")}
    params = nets.actor(given["features"].detach())
    action, drawn = nets.actor.draw(params, given["noise"][:, split:])
    states = nets.world.imagine(states, action, given["noise"][:, :split])
    return {**states, "features": nets.world.features(states), "params": params, "drawn": drawn}
