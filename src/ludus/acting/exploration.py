"""How algorithms explore that do not sample a policy gradient's distribution: SAC, TD3, DQN, random actions.

Shapes: B environments, A actions, Z atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeGuard

import gymnasium as gym
import numpy as np
from torch import Tensor

from ludus.acting.actor import Outputs
from ludus.acting.behaviour import SampleClipped, Strategy
from ludus.acting.facts import Makers, lowest_q, policy_facts, q_facts
from ludus.acting.uniform import bounds, single_bounds, uniform
from ludus.errors import ConfigError
from ludus.math.distributions import Distribution, distribution_for
from ludus.networks.q_values import QHead
from ludus.types import Array


class SampleSquashed(SampleClipped):
    """Draws from a squashed Gaussian stored in [-1, 1], or from the probabilities of discrete actions (SAC)."""

    scaled = True

    def __init__(self, distribution: Distribution, space: gym.Space) -> None:
        super().__init__(distribution, space)
        self._scale = scale_to(space)

    def stored(self, drawn: Array) -> Array:
        """As critics see it."""
        return np.tanh(drawn) if is_box(self.space) else drawn

    def for_environment(self, stored: Array) -> Array:
        """Scaled to the bounds of a Box."""
        return self._scale(stored)

    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        """`value` of the action by the lowest critic; of discrete actions the mean of all."""
        found = policy_facts(self.distribution, outputs("actor"), drawn)
        if is_box(self.space):
            return {"value": lambda: lowest_q(outputs, self.stored(drawn)), **found}

        def q() -> Array:
            return outputs("critic").min(0)

        return {"q": q, "value": lambda: (found["probabilities"]() * q()).sum(-1), **found}


class SampleScaled(SampleClipped):
    """Draws from a Gaussian over the unit box, cut off at its sides, or from the probabilities of discrete actions."""

    scaled = True

    def __init__(self, distribution: Distribution, space: gym.Space) -> None:
        super().__init__(distribution, space)
        self._scale = scale_to(space)

    def stored(self, drawn: Array) -> Array:
        """Cut off at -1 and 1."""
        return np.clip(drawn, -1.0, 1.0) if is_box(self.space) else drawn

    def for_environment(self, stored: Array) -> Array:
        """Scaled to the bounds of a Box."""
        return self._scale(stored)

    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        """`value` of the state."""
        found = policy_facts(self.distribution, outputs("actor"), drawn)
        return {"value": lambda: outputs("value")[..., 0], **found}


class AddNoise(Strategy):
    """A deterministic policy's action in [-1, 1], while exploring with Gaussian noise (TD3)."""

    scaled = True

    def __init__(self, space: gym.Space, sigma: Level) -> None:
        self.space, self.sigma, self._scale = space, sigma, scale_to(space)

    def draw(self, outputs: Outputs, rng: np.random.Generator | None) -> Array:
        """The action, with noise only if a stream is given."""
        mean = self._mean(outputs)
        if rng is None:
            return mean
        return np.clip(mean + np.float32(self.sigma.value) * rng.standard_normal(mean.shape, np.float32), -1.0, 1.0)

    def for_environment(self, stored: Array) -> Array:
        """Scaled to the bounds of the Box."""
        return self._scale(stored)

    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        """`mean` and `std` of the action with noise."""
        return {
            "value": lambda: lowest_q(outputs, drawn),
            "mean": lambda: self._mean(outputs),
            "std": lambda: np.full_like(drawn, self.sigma.value),
        }

    def _mean(self, outputs: Outputs) -> Array:
        return np.tanh(outputs("actor")).reshape(outputs.batch, *(self.space.shape or ()))


class EpsilonGreedy(Strategy):
    """The action of the highest value, or with probability epsilon any action (DQN)."""

    def __init__(self, head: QHead, atoms: Tensor, epsilon: Level) -> None:
        self.head, self.atoms, self.epsilon = head, atoms.cpu().numpy(), epsilon

    def explore(self, outputs: Outputs, rng: np.random.Generator) -> Array:
        """Noisy layers get new noise at every step."""
        self.head.new_noise()
        return self._choose(self._q(outputs), rng)

    def draw(self, outputs: Outputs, rng: np.random.Generator | None) -> Array:
        """Noise of noisy layers comes from `rng` too, and training never sees it."""
        with self.head.other_noise(rng):
            q_BA = self._q(outputs)
        return q_BA.argmax(-1) if rng is None else self._choose(q_BA, rng)

    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        """Of the values that the action was chosen by."""
        return q_facts(self._q(outputs), drawn, self.epsilon.value)

    def _q(self, outputs: Outputs) -> Array:
        out = outputs("q")
        if self.head.atoms == 1:
            return out
        weights_BAZ = np.exp(out - out.max(-1, keepdims=True))
        return (weights_BAZ * self.atoms).sum(-1) / weights_BAZ.sum(-1)

    def _choose(self, q_BA: Array, rng: np.random.Generator) -> Array:
        chance, random = rng.random((2, len(q_BA)))
        anything = (random * self.head.actions).astype(np.int64)
        return np.where(chance < self.epsilon.value, anything, q_BA.argmax(-1))


class UniformActions(Strategy):
    """Uniformly random actions."""

    blind = True

    def __init__(self, space: gym.Space) -> None:
        self.space = space

    def draw(self, outputs: Outputs, rng: np.random.Generator | None) -> Array:
        """A random action; there is no greedy one."""
        assert rng is not None, "no random action is greedier than another"
        return uniform(self.space, outputs.batch, rng)

    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        """Of discrete actions like those of a policy without preferences."""
        if not is_box(self.space):
            distribution = distribution_for(self.space)
            return policy_facts(distribution, np.zeros((outputs.batch, distribution.param_dim), np.float32), drawn)
        low, high = bounds(self.space)
        return {
            "mean": lambda: np.broadcast_to((low + high) / 2, drawn.shape),
            "std": lambda: np.broadcast_to((high - low) / 12**0.5, drawn.shape),
            "log_prob": lambda: np.full(outputs.batch, -np.log(high - low).sum()),
        }


class Level:
    """How much an algorithm explores now: epsilon, or the deviation of its noise.

    It is part of the algorithm's state, so that a player of a checkpoint explores as much as training did then.
    """

    def __init__(self, value: float) -> None:
        self.value = value

    def state_dict(self) -> dict[str, float]:
        """The number."""
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Take the number over."""
        self.value = float(state["value"])


# ---- spaces --------------------------------------------------------------------------------------


def is_box(space: gym.Space) -> TypeGuard[gym.spaces.Box]:
    """Whether actions are vectors of numbers."""
    return isinstance(space, gym.spaces.Box)


def scale_to(space: gym.Space) -> Callable[[Array], Array]:
    """From the unit box to the bounds of a Box; discrete actions stay."""
    if not is_box(space):
        return lambda stored: stored
    middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
    low, high = single_bounds(space)

    def scale(stored: Array) -> Array:
        return (middle + half * stored).astype(np.float32, copy=False)

    one = np.ones(space.shape, np.float32)
    if (scale(one) <= high).all() and (scale(-one) >= low).all():
        return scale
    return lambda stored: np.clip(scale(stored), low, high)  # the sum is rounded, at the ends beyond the bounds


def unit_space(space: gym.Space) -> gym.Space:
    """The space of stored actions: the unit box, or all discrete actions."""
    return gym.spaces.Box(-1.0, 1.0, space.shape) if is_box(space) else space


def check_bounded(name: str, space: gym.Space, *, discrete: bool) -> None:
    """Refuse actions that cannot be scaled to the unit box."""
    if discrete and isinstance(space, gym.spaces.Discrete):
        return
    kinds = "Discrete or a bounded Box" if discrete else "a bounded Box"
    if not (is_box(space) and np.issubdtype(space.dtype, np.floating) and np.isfinite([space.low, space.high]).all()):
        raise ConfigError("algorithm.name", f"{name} needs {kinds} as actions, not {space}", "use ppo")
