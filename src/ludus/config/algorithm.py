"""What the section of every algorithm tells about itself: planned updates, batch sizes, its share of several ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from ludus.config.model import Model
from ludus.config.schedule import Schedule
from ludus.errors import ConfigError


class AlgorithmConfig(Model):
    """Base of every algorithm's own section."""

    fixed: ClassVar[frozenset[str]] = frozenset()
    """Fields a phase's `set:` may not change."""
    search: ClassVar[Mapping[str, str]] = {}
    """Field -> where `ludus tune` looks for a better value, in the grammar of `ludus sweep`."""

    def planned_updates(self, env_steps: int, num_envs: int) -> int:
        """How many optimizer steps a run of that many environment steps takes, roughly."""
        return 0

    def full_batch(self, num_envs: int) -> int:
        """Steps in a full minibatch, the size whose updates may be compiled; 0: none are."""
        return 0

    @property
    def compiling_pays_from(self) -> int:
        """Planned updates from which on compiling them saves more time than it takes."""
        return 30_000

    @property
    def longest_rollout(self) -> int:
        """Vector steps that are collected before learning from them; 0 where they go into a buffer at once."""
        return int(getattr(self, "rollout_steps", 0))

    def steps_per_batch(self, rollout_size: int) -> int:
        """Steps that go through the network at once; `rollout_size` is the number of steps in a rollout."""
        return rollout_size

    @property
    def first_update(self) -> int:
        """Environment steps before the first update of a phase that collects."""
        return int(getattr(self, "learning_starts", 0))

    @property
    def discount(self) -> Schedule | None:
        """The discount of returns; None for an algorithm that has none."""
        found = getattr(self, "gamma", None)
        return found if isinstance(found, Schedule) else None

    def check(self, num_envs: int) -> None:
        """Refuse combinations with the rest of the config that cannot work."""

    def of_one_rank(self, ranks: int) -> Self:
        """The same settings as one of several ranks has them, which take equal shares of every batch."""
        changes: dict[str, Any] = {}
        if (batch := getattr(self, "batch_size", 1)) > 1:  # up to 1 it is a fraction, of the share as of the whole
            if batch % ranks:
                problem = f"{batch:g} cannot be divided among {ranks} ranks"
                raise ConfigError("algorithm.batch_size", problem, f"use a multiple of {ranks}")
            changes["batch_size"] = batch // ranks
        if (starts := getattr(self, "learning_starts", 0)) > 1:
            changes["learning_starts"] = -(-starts // ranks)
        return self.model_copy(update=changes)
