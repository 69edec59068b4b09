"""Off-policy behaviour: best actions but for some, or those of a policy, in the unit box as critics see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import gymnasium as gym
import numpy as np
from torch import Tensor

from ludus.acting.actors import TorchActor, make_actor
from ludus.errors import ConfigError
from ludus.learning.learner import Learner
from ludus.networks.action_values import ActionValues
from ludus.networks.q_networks import ActingPolicy
from ludus.types import ActResult, Array, Tree


class Level:
    """How much an algorithm explores now (epsilon, the deviation of noise): part of its state, so that a player of a
    checkpoint explores as much as training did then."""

    def __init__(self, value: float) -> None:
        self.value = value

    def state_dict(self) -> dict[str, float]:
        """The number."""
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Take it over."""
        self.value = float(state["value"])


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
        """Act blindly: until the first update, there is nothing to act by."""
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


class EpsilonGreedy:
    """The action of the highest value, or with probability epsilon any action."""

    def __init__(
        self,
        net: ActionValues,
        atoms: Tensor,
        epsilon: Level,
        rng: np.random.Generator,
        evaluation_rng: np.random.Generator,
    ) -> None:
        self.net, self.atoms, self.epsilon = net, atoms.cpu().numpy(), epsilon
        self.rng, self.evaluation_rng = rng, evaluation_rng
        # the advantages alone decide which action is best, so that plain dueling heads can act in numpy too
        simple = not net.noisy and (net.value is None or net.atoms == 1)
        self.actor = make_actor(net, live=True) if simple else TorchActor(net)  # type: ignore[arg-type]

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""
        return self.actor.initial_state(batch)

    def values(self, obs_B: Array, state: Tree, first_B: Array, *, noise: bool) -> tuple[Array, Tree]:
        """Values [B, A] (of a dueling network, perhaps without the state's own value) and memory."""
        if self.net.noisy:
            self.net.train(noise)
        out, state = self.actor(obs_B, state, first_B)
        if self.net.noisy:
            self.net.train(True)
        if self.net.atoms > 1:
            logits = out.reshape(len(out), self.net.actions, self.net.atoms)
            weights = np.exp(logits - logits.max(-1, keepdims=True))
            out = (weights * self.atoms).sum(-1) / weights.sum(-1)
        return out, state

    def act(self, obs_B: Array, state: Tree, first_B: Array) -> tuple[Array, Array, Tree]:
        """(action, the same for the environment, memory)."""
        self.net.new_noise()
        values, state = self.values(obs_B, state, first_B, noise=True)
        action = self.choose(values, self.rng)
        return action, action, state

    def evaluate(self, obs_B: Array, state: Tree, first_B: Array, *, deterministic: bool) -> ActResult:
        """The same off the record: without any noise if asked, else with noise that training never sees."""
        if deterministic:
            values, state = self.values(obs_B, state, first_B, noise=False)
            return ActResult(values.argmax(-1), state, {"values": values})
        with self.net.other_noise(self.evaluation_rng):
            values, state = self.values(obs_B, state, first_B, noise=True)
        return ActResult(self.choose(values, self.evaluation_rng), state, {"values": values})

    def choose(self, values_BA: Array, rng: np.random.Generator) -> Array:
        """The best action of each row or, with probability epsilon, any."""
        chance, random = rng.random((2, len(values_BA)))
        anything = (random * self.net.actions).astype(np.int64)
        return np.where(chance < self.epsilon.value, anything, values_BA.argmax(-1))


def check_bounded(name: str, space: gym.Space, *, discrete: bool) -> None:
    """Refuse actions that cannot be scaled to the unit box."""
    if discrete and isinstance(space, gym.spaces.Discrete):
        return
    kinds = "Discrete or a bounded Box" if discrete else "a bounded Box"
    box = isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if not (box and np.isfinite([space.low, space.high]).all()):  # type: ignore[attr-defined]
        raise ConfigError("algorithm.name", f"{name} needs {kinds} as actions, not {space}", "use ppo")
