"""Settings of algorithms that learn from the newest rollout of their own policy, and what cannot work together."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from ludus.config.algorithm import AlgorithmConfig
from ludus.config.schedule import NonNegativeSchedule, PositiveSchedule, UnitSchedule, constant
from ludus.errors import ConfigError
from ludus.learning.optimizer import OptimizerConfig


class OnPolicyConfig(AlgorithmConfig):
    """Settings of every policy gradient."""

    fixed = frozenset({"optimizer", "max_grad_norm"})
    search = {
        "lr": "loguniform(1e-4,3e-2)",
        "gamma": "0.9,0.95,0.98,0.99,0.995",
        "entropy_coef": "0.0,0.001,0.01,0.05",
        "max_grad_norm": "0.5,1.0,5.0",
    }

    rollout_steps: PositiveInt = 128
    """Steps per environment between updates."""
    lr: PositiveSchedule = constant(3e-4)
    """Learning rate."""
    memory_lr: PositiveSchedule | None = None
    """Learning rate of the memory core; none: `lr`. Without a memory core it has no effect."""
    gamma: UnitSchedule = constant(0.99)
    """Discount."""
    entropy_coef: NonNegativeSchedule = constant(0.0)
    """Weight of the entropy bonus."""
    max_grad_norm: float | None = Field(default=0.5, gt=0)
    """Largest gradient norm: longer gradients are scaled down to it; none: gradients are not clipped."""
    accumulate: PositiveInt = 1
    """Parts that the environments of a rollout are cut into; their gradients are added up, in less memory."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer."""

    def check(self, num_envs: int) -> None:
        """Every part needs an environment."""
        if self.accumulate > num_envs:
            problem = f"{num_envs} environments cannot be cut into {self.accumulate} parts"
            raise ConfigError("algorithm.accumulate", problem, "use at most environment.num_envs")

    def planned_updates(self, env_steps: int, num_envs: int) -> int:
        """One update per rollout."""
        return env_steps // (self.rollout_steps * num_envs)


class AdvantageConfig(OnPolicyConfig):
    """Settings of policy gradients along generalised advantages."""

    search = {**OnPolicyConfig.search, "gae_lambda": "0.8,0.9,0.95,0.98", "rollout_steps": "8,16,32,64"}

    gae_lambda: UnitSchedule = constant(0.95)
    """Trade-off between bias and variance of the advantages."""
    value_coef: NonNegativeSchedule = constant(0.5)
    """Weight of the value loss."""
    normalize_advantage: bool = True
    """Scale the advantages of each batch to zero mean and unit deviation."""


class MinibatchConfig(AdvantageConfig):
    """Settings of algorithms that learn from each rollout in several passes of minibatches (PPO)."""

    search = {
        **AdvantageConfig.search,
        "rollout_steps": "32,64,128,256",
        "epochs": "4,8,12,20",
        "batch_size": "0.25,0.5,1.0",
        "clip": "0.1,0.2,0.3",
    }

    epochs: PositiveInt = 4
    """Passes over each rollout, and over what is replayed with it."""
    batch_size: float = Field(default=0.25, gt=0)
    """Steps per minibatch, or a fraction of the rollout up to 1; must divide the rollout. With a memory core whole
    sequences are taken, at least one: there are never more minibatches than environments."""
    accumulate: PositiveInt = 1
    """Minibatches whose gradients are added up for one step: a larger `batch_size` in less memory."""
    clip: PositiveSchedule = constant(0.2)
    """How far the ratio may move from 1 before its gradient is cut."""
    target_kl: float | None = Field(default=None, gt=0)
    """Skip the remaining epochs of this rollout once the divergence exceeds it."""

    def steps_per_batch(self, rollout_size: int) -> int:
        """`batch_size` in steps."""
        return max(1, int(self.batch_size * rollout_size)) if self.batch_size <= 1 else int(self.batch_size)

    def minibatches(self, steps: int, rollout_size: int) -> int:
        """Minibatches of one pass over `steps`; one whose advantages are normalised has at least two steps."""
        wanted = steps // (self.steps_per_batch(rollout_size) * self.accumulate)
        return max(1, min(wanted, steps // 2) if self.normalize_advantage else wanted)

    def planned_updates(self, env_steps: int, num_envs: int) -> int:
        """`epochs` passes over every rollout."""
        size = self.rollout_steps * num_envs
        return env_steps // size * self.epochs * self.minibatches(size, size)

    def full_batch(self, num_envs: int) -> int:
        """Minibatches that are not accumulated over."""
        return self.steps_per_batch(self.rollout_steps * num_envs) if self.accumulate == 1 else 0

    def check(self, num_envs: int) -> None:
        """Minibatches must divide the rollout."""
        size = self.rollout_steps * num_envs
        batch = self.steps_per_batch(size)
        if batch > size or size % batch or (self.batch_size > 1 and self.batch_size % 1):
            rollout = f"{num_envs} x {self.rollout_steps} = {size} steps"
            problem = f"{self.batch_size:g} does not divide the rollout of {rollout}"
            raise ConfigError("algorithm.batch_size", problem, "use a divisor, or a fraction such as 0.25")
        if self.normalize_advantage and batch * self.accumulate == 1:
            raise ConfigError("algorithm.batch_size", "one step per minibatch cannot be normalised", "use at least 2")
        if size // batch % self.accumulate:
            problem = f"{self.accumulate} does not divide the {size // batch} minibatches of a rollout"
            raise ConfigError("algorithm.accumulate", problem, "use a divisor, or a smaller batch_size")
