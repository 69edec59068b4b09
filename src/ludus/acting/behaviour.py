"""The one way of acting: an actor computes the outputs of a network, a strategy turns them into actions.

Reading order: Behaviour.act -> SampleClipped. Actors run the modules (`actor.py`), or small networks in numpy
(`numpy_actor.py`); strategies of other algorithms are in `exploration.py`. Shapes: B environments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import gymnasium as gym
import numpy as np

from ludus.acting.actor import Actor, Outputs
from ludus.acting.facts import Facts, Makers, policy_facts
from ludus.acting.uniform import single_bounds
from ludus.learning.learner import Learner
from ludus.math.distributions import Distribution
from ludus.types import Acted, ActResult, Array, Tree


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
        learner: Learner | None = None,
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
        outputs, state = self._outputs(strategy, obs_B, state, first_B, self.rng)
        action = strategy.stored(strategy.explore(outputs, self.rng))
        if self.actor is not None:
            state = self.actor.remember(state, action)
        return Acted(action, self.strategy.for_environment(action), state, strategy.extras(outputs))

    def evaluate(self, obs_B: Array, state: Tree, first_B: Array, *, deterministic: bool) -> ActResult:
        """One step of evaluation; training notices nothing of it."""
        rng = None if deterministic else self.evaluation_rng
        outputs, state = self._outputs(self.strategy, obs_B, state, first_B, rng)
        drawn = self.strategy.draw(outputs, rng)
        action = self.strategy.stored(drawn)
        if self.actor is not None:
            state = self.actor.remember(state, action)
        return ActResult(self.strategy.for_environment(action), state, Facts(self.strategy, outputs, drawn))

    def _outputs(
        self, strategy: Strategy, obs_B: Array, state: Tree, first_B: Array, rng: np.random.Generator | None
    ) -> tuple[Outputs, Tree]:
        if self.actor is None or (strategy.blind and not self.actor.recurrent):
            return Outputs(len(first_B)), state
        if self.learner is not None and self._version != self.learner.version:
            self.actor.refresh()
            self._version = self.learner.version
        return self.actor(obs_B, state, first_B, rng)


# ---- strategies ----------------------------------------------------------------------------------


class Strategy(ABC):
    """Turns outputs into actions: drawn -> stored -> for the environment."""

    blind = False
    """Whether it reads no output."""
    scaled = False
    """Whether stored actions lie in the unit box and are scaled to the bounds of a Box for the environment."""

    @abstractmethod
    def draw(self, outputs: Outputs, rng: np.random.Generator | None) -> Array:
        """An action; the greedy one without a random stream."""

    def explore(self, outputs: Outputs, rng: np.random.Generator) -> Array:
        """An action while training."""
        return self.draw(outputs, rng)

    def stored(self, drawn: Array) -> Array:
        """A drawn action as it is stored and learned from."""
        return drawn

    def for_environment(self, stored: Array) -> Array:
        """A stored action as the environment takes it."""
        return stored

    def extras(self, outputs: Outputs) -> dict[str, Array]:
        """What else the rollout keeps of a step."""
        return {}

    @abstractmethod
    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        """What can be told about a drawn action."""


class SampleClipped(Strategy):
    """Draws from the policy's distribution; the environment gets actions clipped to the bounds of its space.

    With `keep` the rollout carries distribution parameters and values, so that learning need not compute them again.
    """

    def __init__(self, distribution: Distribution, space: gym.Space, *, keep: bool = False) -> None:
        self.distribution, self.space, self.keep, self.bounds = distribution, space, keep, None
        if isinstance(space, gym.spaces.Box):
            self.bounds = single_bounds(space)

    def draw(self, outputs: Outputs, rng: np.random.Generator | None) -> Array:
        """A sample, or the mode."""
        params = outputs("actor")
        return self.distribution.mode_numpy(params) if rng is None else self.distribution.sample_numpy(params, rng)

    def for_environment(self, stored: Array) -> Array:
        """Clipped to the bounds of a Box."""
        return stored if self.bounds is None else np.clip(stored, *self.bounds)

    def extras(self, outputs: Outputs) -> dict[str, Array]:
        """Distribution parameters and values, if they are kept."""
        return {"params": outputs("actor"), "value": outputs("critic")[..., 0]} if self.keep else {}

    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        """`value` only where there is a critic."""
        found = policy_facts(self.distribution, outputs("actor"), drawn)
        return {"value": lambda: outputs("critic")[..., 0], **found} if "critic" in outputs.heads else found
