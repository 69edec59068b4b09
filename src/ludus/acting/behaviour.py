"""The one way of acting: an actor computes a network's outputs, a strategy turns them into actions."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ludus.acting.actors import Actor, Outputs
from ludus.acting.facts import Facts
from ludus.acting.strategies import Strategy
from ludus.types import Acted, ActResult, Array, Tree


class Versioned(Protocol):
    """Something whose weights change; a learner."""

    version: int


class Behaviour:
    """Acts for training and for evaluation, which draw from separate random streams.

    Args:
        actor: computes the outputs; None where actions depend on no observation.
        learner: owner of the weights, where the actor works on copies that have to follow them.
        blind: strategy used while `uniform` is set.
    """

    def __init__(
        self,
        actor: Actor | None,
        strategy: Strategy,
        *,
        rng: np.random.Generator,
        evaluation_rng: np.random.Generator,
        learner: Versioned | None = None,
        blind: Strategy | None = None,
    ) -> None:
        self.actor, self.strategy, self.blind, self.learner = actor, strategy, blind, learner
        self.rng, self.evaluation_rng = rng, evaluation_rng
        self.uniform = False
        """Explore by `blind`: off-policy algorithms do until their first update."""
        self._version = -1

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""
        return () if self.actor is None else self.actor.initial_state(batch)

    def act(self, obs_B: Array, state: Tree, first_B: Array) -> Acted:
        """One step of training with the newest weights."""
        strategy = self.blind if self.uniform and self.blind is not None else self.strategy
        outputs, state = self._outputs(strategy, obs_B, state, first_B)
        action = strategy.stored(strategy.explore(outputs, self.rng))
        return Acted(action, self.strategy.for_environment(action), state, strategy.extras(outputs))

    def evaluate(self, obs_B: Array, state: Tree, first_B: Array, *, deterministic: bool) -> ActResult:
        """One step of evaluation; training notices nothing of it."""
        outputs, state = self._outputs(self.strategy, obs_B, state, first_B)
        drawn = self.strategy.draw(outputs, None if deterministic else self.evaluation_rng)
        action = self.strategy.for_environment(self.strategy.stored(drawn))
        return ActResult(action, state, Facts(self.strategy, outputs, drawn))

    def _outputs(self, strategy: Strategy, obs_B: Array, state: Tree, first_B: Array) -> tuple[Outputs, Tree]:
        if self.actor is None or (strategy.blind and not self.actor.recurrent):
            return Outputs(len(first_B)), state
        if self.learner is not None and self._version != self.learner.version:
            self.actor.refresh()
            self._version = self.learner.version
        return self.actor(obs_B, state, first_B)
