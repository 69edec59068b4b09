"""What algorithms share that learn from a replay buffer."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from ludus.acting.actors import make_actor
from ludus.acting.behaviour import Behaviour
from ludus.acting.strategies import Strategy, UniformActions, unit_space
from ludus.algorithms import AlgorithmConfig, Context
from ludus.config.schedule import PositiveSchedule, UnitSchedule, constant
from ludus.errors import ConfigError
from ludus.learning.learner import Learner
from ludus.learning.optimizer import OptimizerConfig
from ludus.networks.trunk import Trunk


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


def actor_critic_behaviour(trunk: Trunk, learner: Learner, strategy: Strategy, context: Context) -> Behaviour:
    """Acts by the trunk and the network `actor`, or at random while its `uniform` is set."""
    heads = {name: learner.networks[name] for name in ("actor", "critic")}
    return Behaviour(
        make_actor(trunk, heads, live=True),
        strategy,
        blind=UniformActions(unit_space(context.spaces.action)),
        rng=context.rng,
        evaluation_rng=context.evaluation_rng,
    )
