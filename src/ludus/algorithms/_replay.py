"""What algorithms share that learn from a replay buffer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ludus.acting.behaviour import Behaviour, Strategy
from ludus.acting.exploration import UniformActions, unit_space
from ludus.acting.numpy_actor import make_actor
from ludus.algorithms import Algorithm, Context, Hook, PhaseContext
from ludus.algorithms._ratio import Replay, UpdateRatioConfig
from ludus.config.optimizer import OptimizerConfig, WithOptimizer
from ludus.config.schedule import PositiveSchedule, UnitSchedule, constant
from ludus.data.buffers.batches import check_size, draw, priorities
from ludus.errors import ConfigError
from ludus.learning.learner import Group, Learner, UpdateFunction
from ludus.networks.policy import Trunk
from ludus.types import Report, Stateful


class ReplayConfig(WithOptimizer, UpdateRatioConfig):
    """Settings of every algorithm that learns from a replay buffer."""

    fixed = frozenset({"optimizer", "max_grad_norm", "update_ratio", "epoch_steps"})
    search = {
        "lr": "loguniform(1e-4,3e-3)",
        "gamma": "0.95,0.98,0.99,0.995",
        "batch_size": "64,128,256",
        "n_step": "1,3,5",
        "update_ratio": "0.25,0.5,1.0",
    }

    lr: PositiveSchedule = constant(3e-4)
    """Learning rate; in an actor-critic that of the critics and, unless it has its own, of the actor."""
    gamma: UnitSchedule = constant(0.99)
    """Discount."""
    batch_size: PositiveInt = 256
    """Transitions per update; with a memory core, sequences."""
    accumulate: PositiveInt = 1
    """Parts that a batch is cut into; their gradients are added up, so that fewer steps are in memory."""
    n_step: PositiveInt = 1
    """Rewards summed before bootstrapping."""
    sequence_length: PositiveInt = 32
    """Steps per sequence that are learned from, with a memory core."""
    burn_in: int = Field(default=8, ge=0)
    """Steps before them that only bring the stored memory up to date."""
    max_grad_norm: float | None = Field(default=None, gt=0)
    """Largest gradient norm of each optimizer's networks: longer gradients are scaled down to it; none: no clipping."""
    optimizer: OptimizerConfig = OptimizerConfig(eps=1e-8)
    """Optimizer."""

    @property
    def updating(self) -> tuple[str, ...]:
        return ("update_controller",)

    def full_batch(self, num_envs: int) -> int:
        """Batches that are not accumulated over."""
        return self.batch_size if self.accumulate == 1 else 0

    def steps_per_batch(self, rollout_size: int) -> int:
        """Steps that go through a network with memory at once."""
        return -(-self.batch_size // self.accumulate) * (self.burn_in + self.sequence_length)

    def check(self, num_envs: int) -> None:
        """Every part of an accumulated batch needs a sample."""
        if self.accumulate > self.batch_size:
            problem = f"a batch of {self.batch_size} cannot be cut into {self.accumulate} parts"
            raise ConfigError("algorithm.accumulate", problem, "use at most algorithm.batch_size")


class ReplayBuffers(Replay):
    """Buffers that a learner with a trunk learns from."""

    def __init__(
        self,
        context: Context,
        trunk: Trunk,
        learner: Learner,
        behaviour: Behaviour,
        *,
        stored: bool = True,
        default: str = "replay",
    ) -> None:
        super().__init__(context, learner, behaviour, scaled=behaviour.strategy.scaled, default=default)
        self.trunk, self.stored = trunk, stored
        if trunk.recurrent and stored:
            for buffer in self.buffers.values():
                buffer.store_memory(behaviour.initial_state(1))

    def check(self, cfg: ReplayConfig, name: str | None) -> None:
        """The buffer must hold a batch."""
        check_size(self[name], cfg, recurrent=self.trunk.recurrent, stored=self.stored)

    def learn(
        self,
        function: UpdateFunction,
        now: PhaseContext,
        scalars: Mapping[str, float],
        more: Mapping[str, Tensor] | None = None,
        **static: object,
    ) -> Report:
        """One update from replayed steps and `more` columns, and their new priorities; none while there are too few."""
        cfg, buffer = now.cfg, self[now.buffer]
        blank = None if self.stored else self.trunk.initial_state(cfg.batch_size)
        drawn = draw(buffer, now, recurrent=self.trunk.recurrent, device=self.device, blank=blank)
        if self.trunk.recurrent and not self.learner.ranks.everywhere(drawn is not None):
            return Report()  # when sequences can be drawn depends on the episodes of each rank
        if drawn is None:
            return Report()
        batch, index = drawn
        batch |= more or {}
        found = self.learner.update(function, batch, scalars, accumulate=cfg.accumulate, burn_in=cfg.burn_in, **static)
        if buffer.has_priorities:
            buffer.update_priorities(index, priorities(found["error"]))
        return Report(updates=1)


class ReplayAlgorithm(Algorithm):
    """The frame of algorithms that collect into buffers and learn from them."""

    off_policy = True
    learner: Learner
    replay: ReplayBuffers

    def hooks(self) -> dict[str, Hook]:
        """`collect`, then `update_controller`."""
        return {"collect": self.collect, "update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        """Weights, slow copies and moments."""
        return {"learner": self.learner}

    def check(self, cfg: ReplayConfig, buffer: str | None) -> None:
        self.replay.check(cfg, buffer)

    def metrics(self) -> dict[str, float]:
        return {**self.statistics(), **self.learner.metrics()}

    def collect(self, now: PhaseContext) -> Report:
        """A few steps into the buffer of the phase; random ones until there is something to learn from."""
        return self.replay.collect(self.rollout, now)

    @abstractmethod
    def update_controller(self, now: PhaseContext) -> Report:
        """One update from replayed steps."""


def build_actor_critic(
    cfg: ReplayConfig, context: Context, networks: Mapping[str, nn.Module], targets: Sequence[str], strategy: Strategy
) -> tuple[Learner, Behaviour]:
    """A learner whose critics train the trunk, and a behaviour that acts by trunk and actor, or at random.

    `networks` are `trunk`, `critic`, `actor`, and others that have an optimizer of their own.
    """
    trunk = networks["trunk"]
    assert isinstance(trunk, Trunk)
    groups = {name: ("trunk", name) if name == "critic" else (name,) for name in networks if name != "trunk"}
    learner = Learner(
        {name: part.to(context.device) for name, part in networks.items()},
        {name: Group(members, cfg.optimizer, cfg.max_grad_norm) for name, members in groups.items()},
        targets=targets,
        generator=context.rng,
        compiler=None if trunk.recurrent else context.compiler,
    )
    behaviour = Behaviour(
        make_actor(trunk, {name: networks[name] for name in ("actor", "critic")}, live=True),
        strategy,
        blind=UniformActions(unit_space(context.spaces.action)),
        rng=context.rng,
        evaluation_rng=context.evaluation_rng,
    )
    return learner, behaviour
