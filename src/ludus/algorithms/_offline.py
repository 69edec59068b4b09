"""What algorithms share that learn from stored steps alone."""

from __future__ import annotations

from abc import abstractmethod

from ludus.algorithms import Algorithm, Context, Hook, PhaseContext
from ludus.errors import ConfigError
from ludus.learning.learner import Learner
from ludus.types import Report, Stateful


class OfflineAlgorithm(Algorithm):
    """Has the one hook `update_controller`, and takes no environment steps."""

    off_policy = True
    default_cycle = ("update_controller",)
    learner: Learner

    def __init__(self, name: str, context: Context) -> None:
        if context.collector is not None:
            problem = f"{name} takes no environment steps"
            raise ConfigError("training.total_updates", problem, "set it: the budget in updates")
        self.device = context.device

    def hooks(self) -> dict[str, Hook]:
        """`update_controller` alone."""
        return {"update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        """Weights and moments."""
        return {"learner": self.learner}

    @abstractmethod
    def update_controller(self, now: PhaseContext) -> Report:
        """One update from steps of the data set."""
