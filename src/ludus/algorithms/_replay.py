"""What algorithms share that learn from a replay buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from ludus.acting.behaviour import Behaviour, Strategy
from ludus.acting.exploration import UniformActions, unit_space
from ludus.acting.numpy_actor import make_actor
from ludus.algorithms import AlgorithmConfig, Context, PhaseContext
from ludus.config.schedule import PositiveSchedule, UnitSchedule, constant
from ludus.data.buffers.batches import check_size, draw, priorities
from ludus.data.buffers.sampling import Buffer
from ludus.data.rollout import Rollout
from ludus.errors import ConfigError
from ludus.learning.learner import Group, Learner, UpdateFunction
from ludus.learning.optimizer import OptimizerConfig
from ludus.networks.policy import Trunk
from ludus.types import Report


class ReplayConfig(AlgorithmConfig):
    """Settings of every algorithm that learns from a replay buffer."""

    fixed = frozenset({"optimizer", "max_grad_norm", "update_ratio", "epoch_steps"})

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
    learning_starts: PositiveInt = 1_000
    """Steps that go into the buffer before the first update; an actor-critic collects them with random actions."""
    train_freq: PositiveInt = 1
    """Steps of every environment between updates."""
    update_ratio: PositiveFloat = 1.0
    """Updates per environment step."""
    sequence_length: PositiveInt = 32
    """Steps per sequence that are learned from, with a memory core."""
    burn_in: int = Field(default=8, ge=0)
    """Steps before them that only bring the stored memory up to date."""
    max_grad_norm: float | None = Field(default=None, gt=0)
    """Largest gradient norm of each optimizer's networks: longer gradients are scaled down to it; none: no clipping."""
    epoch_steps: PositiveInt = 1_000
    """Environment steps per epoch: metrics, evaluation and checkpoints come at its end."""
    optimizer: OptimizerConfig = OptimizerConfig(eps=1e-8)
    """Optimizer."""

    @model_validator(mode="before")
    @classmethod
    def keep_own_optimizer(cls, given: Any) -> Any:
        """What is not said of the optimizer is as the algorithm has it."""
        if not isinstance(given, dict) or not isinstance(wanted := given.get("optimizer"), dict):
            return given
        own = cls.model_fields["optimizer"].default.model_dump(exclude_unset=True)
        return {**given, "optimizer": {**own, **wanted}}

    @property
    def cycle(self) -> tuple[str | dict[str, Any], ...]:
        """`update_ratio` updates for every step that is collected."""
        return "collect", {"update_controller": {"per_env_step": self.update_ratio}}

    def planned_updates(self, env_steps: int, num_envs: int) -> int:
        """`update_ratio` updates per step once learning began."""
        return int(max(0, env_steps - self.learning_starts) * self.update_ratio)

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


class ReplayBuffers:
    """The buffers of an algorithm: it collects into them with its behaviour, and its learner learns from them."""

    def __init__(
        self, context: Context, trunk: Trunk, learner: Learner, behaviour: Behaviour, *, stored: bool = True
    ) -> None:
        self.buffers, self.device = context.buffers, context.device
        self.learner, self.behaviour, self.trunk, self.stored = learner, behaviour, trunk, stored
        for buffer in self.buffers.values():
            buffer.scaled_actions = behaviour.strategy.scaled
            if trunk.recurrent and stored:
                buffer.store_memory(behaviour.initial_state(1))

    def __getitem__(self, name: str | None) -> Buffer:
        return self.buffers[name or "replay"]

    def check(self, cfg: ReplayConfig, name: str | None) -> None:
        """The buffer must hold a batch."""
        check_size(self[name], cfg, recurrent=self.trunk.recurrent, stored=self.stored)

    def collect(self, rollout: Callable[[PhaseContext, int], Rollout], now: PhaseContext) -> Report:
        """A few steps into the buffer of the phase; at random (`Behaviour.blind`) before the first update."""
        buffer = self[now.buffer]
        self.behaviour.uniform = self.learner.updates == 0 and buffer.added < now.cfg.learning_starts
        steps = rollout(now, now.cfg.train_freq)
        buffer.add(steps)
        return Report(env_steps=steps.env_steps)

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
        if drawn is None:
            return Report()
        batch, index = drawn
        batch |= more or {}
        found = self.learner.update(function, batch, scalars, accumulate=cfg.accumulate, burn_in=cfg.burn_in, **static)
        buffer.update_priorities(index, priorities(found["error"]))
        return Report(updates=1)


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
