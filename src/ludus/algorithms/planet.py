"""PlaNet (Hafner et al. 2019, arXiv:1811.04551): plan with a learned world model, without a policy.

Reading order: PlaNetConfig -> update_world_model -> CrossEntropyPlanner.plan -> math/planning.py.
With `representation.type=identity` there is no latent state: an ensemble predicts observations (Chua et al. 2018).

Shapes: T rows, B sequences or environments, K candidates, H horizon, A action.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from ludus.acting.actor import Outputs
from ludus.acting.behaviour import Behaviour
from ludus.acting.exploration import AddNoise, Level, UniformActions, check_bounded, unit_space
from ludus.acting.facts import Makers
from ludus.algorithms import Algorithm, Context, Hook, PhaseContext
from ludus.algorithms._world import WorldConfig, WorldReplay, named_settings
from ludus.components.representation import LatentState
from ludus.components.world_model import WorldModel
from ludus.components.world_player import WorldPlayer
from ludus.config.schedule import PositiveSchedule, UnitSchedule, constant
from ludus.errors import ConfigError
from ludus.learning.learner import Batch, Group, Learner, Metrics, Networks, Scalars
from ludus.learning.rehearsal import Rehearsal
from ludus.math.planning import cross_entropy_method
from ludus.registry import ALGORITHMS
from ludus.types import Array, Report, Stateful, Tree, tree_map

PLANET: dict[str, Any] = {
    "encoder": {"symlog": False, "activation": "elu", "norm": False},
    "representation": {
        "type": "rssm",
        "latent": "gaussian",
        "cell": "gru",
        "deter": 200,
        "hidden": 200,
        "stoch": 30,
        "prior_layers": 1,
        "dynamics_scale": 1.0,
        "representation_scale": 1.0,
        "free_nats": 3.0,
        "activation": "elu",
        "norm": False,
    },
    "decoder": {"type": "auto", "symlog": False, "activation": "elu", "norm": False},
    "reward": {"type": "gaussian", "layers": 2, "activation": "elu", "norm": False},
    "continues": {"activation": "elu", "norm": False},
    "observation_scale": 0.5,
    "optimizer": {"eps": 1e-4},
}
"""What PlaNet fills in."""


class PlaNetConfig(WorldConfig):
    """Planning in the latent space of a world model."""

    fixed = WorldConfig.fixed | {"horizon", "candidates", "rounds", "elites"}

    batch_size: PositiveInt = 50
    """Sequences per update."""
    sequence_length: int = Field(default=50, ge=2)
    """Rows per sequence."""
    train_ratio: float = Field(default=250.0, gt=0, allow_inf_nan=False)
    """Replayed rows per environment step: `train_ratio / (batch_size * sequence_length)` updates per step."""
    lr: PositiveSchedule = constant(1e-3)
    """Learning rate."""
    max_grad_norm: float | None = Field(default=1000.0, gt=0)
    """Largest gradient norm; none: no clipping."""
    warmup_updates: int = Field(default=0, ge=0)
    """Updates over which the learning rate rises from zero."""
    exploration: UnitSchedule = constant(0.3)
    """Deviation of the noise on actions while collecting."""
    horizon: PositiveInt = 12
    """Steps that a plan looks ahead."""
    candidates: PositiveInt = 1_000
    """Sequences of actions in each round."""
    rounds: PositiveInt = 10
    """Rounds of planning."""
    elites: PositiveInt = 100
    """Best sequences that the next round is drawn around."""

    @model_validator(mode="before")
    @classmethod
    def fill_in(cls, given: Any) -> Any:
        """Take what is not said from `size` and from PlaNet's own settings."""
        return named_settings(given, cls.model_fields, PLANET)

    @property
    def updating(self) -> tuple[str, ...]:
        return ("update_world_model",)

    def check(self, num_envs: int) -> None:
        """The best sequences are some of the candidates."""
        if self.elites > self.candidates:
            problem = f"{self.elites:,} of {self.candidates:,} candidates cannot be the best"
            raise ConfigError("algorithm.elites", problem, "use at most algorithm.candidates")


@ALGORITHMS.register("planet")
class PlaNet(Algorithm):
    """A world model whose every decision is planned anew."""

    Config = PlaNetConfig
    off_policy = True
    buffers = {"replay": {"type": "online", "size": "auto"}}
    networks = frozenset()

    def __init__(self, cfg: PlaNetConfig, context: Context) -> None:
        cfg.check(context.num_envs)
        check_bounded("planet", context.spaces.action, discrete=False)
        self.collector, self.default_cycle, self.epoch_steps = context.collector, cfg.cycle, cfg.epoch_steps
        self.world = world = WorldModel(cfg, context.spaces, context.precision).to(context.device)
        group = Group(("world",), cfg.optimizer, cfg.max_grad_norm)
        self.learner = Learner({"world": world}, {"world": group}, generator=context.rng)
        self.explores = Level(cfg.exploration.start)
        self.behaviour = Behaviour(
            CrossEntropyPlanner(world, cfg),
            NoisyPlan(context.spaces.action, self.explores),
            blind=UniformActions(unit_space(context.spaces.action)),
            rng=context.rng,
            evaluation_rng=context.evaluation_rng,
        )
        self.replay = WorldReplay(context, self.learner, self.behaviour, self.explores)

    def hooks(self) -> dict[str, Hook]:
        """`collect`, then `update_world_model`; there is no controller to learn."""
        return {"collect": self.collect, "update_world_model": self.update_world_model}

    def state(self) -> dict[str, Stateful]:
        """Weights and moments; the noise of exploration now."""
        return {"learner": self.learner, "explores": self.explores}

    def check(self, cfg: PlaNetConfig, buffer: str | None) -> None:
        self.replay.check(cfg, buffer)

    def activations(self, cfg: PlaNetConfig, rehearsal: Rehearsal) -> int:
        return self.replay.activations(cfg, lambda batch, _: rehearsal.kept(self.update, batch, {"lr": 0.0}))

    def metrics(self) -> dict[str, float]:
        return {**self.statistics(), **self.learner.metrics()}

    def collect(self, now: PhaseContext) -> Report:
        """A few planned steps into the buffer; random ones until there is something to learn from."""
        return self.replay.collect(self.rollout, now)

    def update_world_model(self, now: PhaseContext) -> Report:
        """One step of the world model."""
        batch = self.replay.rows(now)
        if batch is None:
            return Report()
        self.learner.update(self.update, batch, {"lr": now.cfg.warm(self.learner.updates) * now.at(now.cfg.lr)})
        return Report(updates=1)

    def update(self, nets: Networks, batch: Batch, c: Scalars) -> Metrics:
        """The world model towards replayed rows."""
        noise = nets.noise((*batch["first"].shape, nets.world.representation.noise_dim))
        loss, _, metrics = nets.world.losses(batch, noise, 1.0)
        nets.step("world", loss, c["lr"])
        return metrics


class CrossEntropyPlanner(WorldPlayer):
    """An actor that plans: its output `plan` is the best first action it found."""

    world: WorldModel

    def __init__(self, world: WorldModel, cfg: PlaNetConfig) -> None:
        super().__init__(world, {})
        self.cfg = cfg

    @torch.no_grad()
    def __call__(
        self, obs_B: Array, state: Tree, first_B: Array, rng: np.random.Generator | None = None
    ) -> tuple[Outputs, Tree]:
        _, after = super().__call__(obs_B, state, first_B, rng)
        known: dict[str, Array] = {}

        def read(_: None, head: str) -> Array:
            plan, value = self.plan(after["latent"], rng or np.random.default_rng(0))
            known.update(plan=plan.cpu().numpy(), value=value.cpu().numpy())
            return known[head]

        return Outputs(len(first_B), ("plan", "value"), read=read, known=known), after  # random steps need no plan

    @torch.no_grad()
    def plan(self, state: LatentState, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """(first action [B, A], predicted return [B]) of the best plan."""
        cfg, world = self.cfg, self.world
        batch, split = len(next(iter(state.values()))), world.representation.noise_dim
        shape = (cfg.rounds, cfg.horizon, batch, cfg.candidates, world.action_dim)
        noise = torch.from_numpy(rng.standard_normal(shape, np.float32)).to(self.device)
        dreams = rng.standard_normal((cfg.horizon, batch * cfg.candidates, split), np.float32)
        noise_H = torch.from_numpy(dreams).to(self.device)
        starts = tree_map(lambda leaf: leaf.repeat_interleave(cfg.candidates, 0), state)
        best = torch.full((batch,), -torch.inf, device=self.device)

        def score(actions_HBKA: Tensor) -> Tensor:
            nonlocal best
            returns_BK = self.imagined_return(starts, actions_HBKA.flatten(1, 2), noise_H).view(batch, -1)
            best = torch.maximum(best, returns_BK.amax(1))
            return returns_BK

        mean, _ = cross_entropy_method(score, noise, elites=cfg.elites)
        return mean[0], best

    def imagined_return(self, state: LatentState, actions_HNA: Tensor, noise_HN: Tensor) -> Tensor:
        """Sum [N] of predicted rewards along sequences of actions, each times the chance that it is reached."""
        total = actions_HNA.new_zeros(actions_HNA.shape[1])
        alive = torch.ones_like(total)
        for action, noise in zip(actions_HNA.unbind(), noise_HN.unbind(), strict=True):
            state = self.world.imagine(state, action, noise)
            features = self.world.features(state)
            total = total + alive * self.world.reward.mean(self.world.reward(features))
            alive = alive * self.world.lives(features, 1.0)
        return total


class NoisyPlan(AddNoise):
    """The planned action, while exploring with Gaussian noise."""

    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        """`value` is the return that the plan predicts."""
        return {
            "value": lambda: outputs("value"),
            "mean": lambda: self._mean(outputs),
            "std": lambda: np.full_like(drawn, self.sigma.value),
        }

    def _mean(self, outputs: Outputs) -> Array:
        return outputs("plan").reshape(outputs.batch, *(self.space.shape or ()))
