"""Off-policy behaviour: actions in the unit box (or indices) as critics see them, rescaled for the environment."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import numpy as np

from ludus.errors import ConfigError
from ludus.networks.actors import make_actor
from ludus.networks.learner import Learner
from ludus.networks.q_networks import ActingPolicy
from ludus.types import ActResult, Array, Tree


class ExploringBehaviour:
    """Acts by a policy or, while `uniform` is set, blindly; collecting and evaluating use separate random streams.

    What is stored is what critics learn from: actions scaled to [-1, 1], or indices.
    """

    def __init__(
        self,
        policy: ActingPolicy,
        learner: Learner,
        space: gym.Space,
        *,
        explore: Callable[[Array, np.random.Generator], Array],
        greedy: Callable[[Array], Array],
        rng: np.random.Generator,
        evaluation_rng: np.random.Generator,
    ) -> None:
        self.policy, self.learner, self.space = policy, learner, space
        self.explore, self.greedy = explore, greedy
        self.rng, self.evaluation_rng = rng, evaluation_rng
        self.actor = make_actor(
            policy, live=True
        )  # weights change after every step: copying them costs more than it saves
        self.uniform = False
        if isinstance(space, gym.spaces.Box):
            self._middle, self._half = (space.high + space.low) / 2, (space.high - space.low) / 2

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""
        return self.actor.initial_state(batch)

    def act(self, obs_B: Array, state: Tree, first_B: Array) -> tuple[Array, Array, Tree]:
        """(action to learn from, action for the environment, memory)."""
        if self.uniform and not self.policy.recurrent:
            action = self._any(len(first_B))
        else:
            params, state = self.actor(obs_B, state, first_B)
            action = self._any(len(first_B)) if self.uniform else self.explore(params, self.rng)
        return action, self.for_environment(action), state

    def evaluate(self, obs_B: Array, state: Tree, first_B: Array, *, deterministic: bool) -> ActResult:
        """The same policy off the record: other random stream, greedy if asked."""
        params, state = self.actor(obs_B, state, first_B)
        action = self.greedy(params) if deterministic else self.explore(params, self.evaluation_rng)
        return ActResult(self.for_environment(action), state, {"params": params})

    def for_environment(self, action: Array) -> Array:
        """From [-1, 1] to the bounds of the space; indices stay."""
        if not isinstance(self.space, gym.spaces.Box):
            return action
        return (self._middle + self._half * action).astype(np.float32, copy=False)

    def _any(self, batch: int) -> Array:
        if isinstance(self.space, gym.spaces.Discrete):
            return self.rng.integers(int(self.space.n), size=batch)
        return self.rng.uniform(-1.0, 1.0, (batch, *self.space.shape)).astype(np.float32)  # type: ignore[misc]


def check_bounded(name: str, space: gym.Space, *, discrete: bool) -> None:
    """Refuse actions that cannot be scaled to the unit box."""
    if discrete and isinstance(space, gym.spaces.Discrete):
        return
    kinds = "Discrete or a bounded Box" if discrete else "a bounded Box"
    box = isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if not (box and np.isfinite([space.low, space.high]).all()):  # type: ignore[attr-defined]
        raise ConfigError("algorithm.name", f"{name} needs {kinds} as actions, not {space}", "use ppo")
