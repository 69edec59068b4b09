"""Strategies: how the outputs of a network become an action while exploring, sampling and acting greedily.

A strategy also says how an action as it is stored (and learned from) becomes the one that the environment gets, and
what can be told about a decision: the vocabulary of `ActResult.info`. Shapes: B environments, A actions, Z atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from ludus.acting.actors import Outputs
from ludus.acting.uniform import bounds, uniform
from ludus.errors import ConfigError
from ludus.math.distributions import Distribution, distribution_for
from ludus.networks.heads import QHead
from ludus.types import Array

Extras = dict[str, Array]


class Facts(Mapping[str, Array]):
    """What can be told about a decision; each fact is computed when it is first read, with the weights of then."""

    def __init__(self, **facts: Callable[[], Array]) -> None:
        self._facts, self._known = facts, dict[str, Array]()

    def __getitem__(self, name: str) -> Array:
        if name not in self._known:
            self._known[name] = self._facts[name]()
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


class Strategy(Protocol):
    """Turns outputs into actions."""

    blind: bool
    """Whether it reads no output."""

    def explore(self, outputs: Outputs, rng: np.random.Generator) -> tuple[Array, Extras]:
        """(action as it is stored, what else the rollout keeps of this step) while training."""

    def evaluate(self, outputs: Outputs, rng: np.random.Generator | None) -> tuple[Array, Facts]:
        """(action as it would be stored, facts); greedy without a random stream."""

    def for_environment(self, action: Array) -> Array:
        """A stored action as the environment takes it."""


class SampleClipped:
    """Draws from the policy's distribution; the environment gets actions clipped to the bounds of its space.

    With `keep` the rollout carries distribution parameters and values, so that learning need not compute them again.
    """

    blind = False

    def __init__(self, distribution: Distribution, space: gym.Space, *, keep: bool = False) -> None:
        self.distribution, self.keep = distribution, keep
        box = space if isinstance(space, gym.spaces.Box) else None
        self.bounds = None if box is None else (box.low.astype(np.float32), box.high.astype(np.float32))

    def explore(self, outputs: Outputs, rng: np.random.Generator) -> tuple[Array, Extras]:
        params = outputs("actor")
        extras = {"params": params, "value": outputs("critic")[..., 0]} if self.keep else {}
        return self.distribution.sample_numpy(params, rng), extras

    def evaluate(self, outputs: Outputs, rng: np.random.Generator | None) -> tuple[Array, Facts]:
        params = outputs("actor")
        action = drawn(self.distribution, params, rng)
        value = {"value": lambda: outputs("critic")[..., 0]} if "critic" in outputs else {}
        return action, Facts(**value, **policy_facts(self.distribution, params, action))

    def for_environment(self, action: Array) -> Array:
        return action if self.bounds is None else np.clip(action, *self.bounds)


class UnitBox:
    """What strategies of bounded actions share: critics see actions in [-1, 1], environments those of their space."""

    blind = False

    def __init__(self, space: gym.Space) -> None:
        self.space = space
        if isinstance(space, gym.spaces.Box):
            self._middle, self._half = (space.high + space.low) / 2, (space.high - space.low) / 2

    def for_environment(self, action: Array) -> Array:
        """From [-1, 1] to the bounds of the space; indices stay."""
        if not isinstance(self.space, gym.spaces.Box):
            return action
        return (self._middle + self._half * action).astype(np.float32, copy=False)


class SampleSquashed(UnitBox):
    """Draws from a squashed Gaussian, or from the probabilities of discrete actions (SAC)."""

    def __init__(self, distribution: Distribution, space: gym.Space) -> None:
        super().__init__(space)
        self.distribution, self.discrete = distribution, isinstance(space, gym.spaces.Discrete)

    def explore(self, outputs: Outputs, rng: np.random.Generator) -> tuple[Array, Extras]:
        action = self.distribution.sample_numpy(outputs("actor"), rng)
        return action if self.discrete else np.tanh(action), {}

    def evaluate(self, outputs: Outputs, rng: np.random.Generator | None) -> tuple[Array, Facts]:
        params = outputs("actor")
        action = drawn(self.distribution, params, rng)
        facts = policy_facts(self.distribution, params, action)
        if not self.discrete:
            squashed = np.tanh(action)
            return squashed, Facts(value=lambda: smallest_q(outputs, squashed), **facts)

        def q() -> Array:
            return outputs("critic").min(0)

        return action, Facts(q=q, value=lambda: (facts["probabilities"]() * q()).sum(-1), **facts)


class AddNoise(UnitBox):
    """A deterministic policy's action, while exploring with Gaussian noise (TD3)."""

    def __init__(self, space: gym.Space, sigma: Level) -> None:
        super().__init__(space)
        self.sigma = sigma

    def explore(self, outputs: Outputs, rng: np.random.Generator) -> tuple[Array, Extras]:
        return self._noisy(self._mean(outputs), rng), {}

    def evaluate(self, outputs: Outputs, rng: np.random.Generator | None) -> tuple[Array, Facts]:
        mean = self._mean(outputs)
        action = mean if rng is None else self._noisy(mean, rng)
        std = np.full_like(mean, self.sigma.value)
        return action, Facts(value=lambda: smallest_q(outputs, action), mean=lambda: mean, std=lambda: std)

    def _mean(self, outputs: Outputs) -> Array:
        return np.tanh(outputs("actor")).reshape(outputs.batch, *(self.space.shape or ()))

    def _noisy(self, mean: Array, rng: np.random.Generator) -> Array:
        return np.clip(mean + np.float32(self.sigma.value) * rng.standard_normal(mean.shape, np.float32), -1.0, 1.0)


class EpsilonGreedy:
    """The action of the highest value, or with probability epsilon any action (DQN)."""

    blind = False

    def __init__(self, head: QHead, atoms: Tensor, epsilon: Level) -> None:
        self.head, self.atoms, self.epsilon = head, atoms.cpu().numpy(), epsilon

    def explore(self, outputs: Outputs, rng: np.random.Generator) -> tuple[Array, Extras]:
        self.head.new_noise()
        return self._choose(self._q(outputs), rng), {}

    def evaluate(self, outputs: Outputs, rng: np.random.Generator | None) -> tuple[Array, Facts]:
        with self.head.other_noise(rng):
            q_BA = self._q(outputs)
        action = q_BA.argmax(-1) if rng is None else self._choose(q_BA, rng)
        return action, q_facts(q_BA, action, self.epsilon.value)

    def for_environment(self, action: Array) -> Array:
        return action

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


class Uniform:
    """Uniformly random actions."""

    blind = True

    def __init__(self, space: gym.Space) -> None:
        self.space = space

    @classmethod
    def unit(cls, space: gym.Space) -> Uniform:
        """Stored actions of the unit box, or all discrete ones."""
        return cls(gym.spaces.Box(-1.0, 1.0, space.shape) if isinstance(space, gym.spaces.Box) else space)

    def explore(self, outputs: Outputs, rng: np.random.Generator) -> tuple[Array, Extras]:
        return uniform(self.space, outputs.batch, rng), {}

    def evaluate(self, outputs: Outputs, rng: np.random.Generator | None) -> tuple[Array, Facts]:
        assert rng is not None, "no random action is greedier than another"
        action = uniform(self.space, outputs.batch, rng)
        if not isinstance(self.space, gym.spaces.Box):
            distribution = distribution_for(self.space)
            equal = np.zeros((outputs.batch, distribution.param_dim), np.float32)
            return action, Facts(**policy_facts(distribution, equal, action))
        low, high = bounds(self.space)
        return action, Facts(
            mean=lambda: np.broadcast_to((low + high) / 2, action.shape),
            std=lambda: np.broadcast_to((high - low) / 12**0.5, action.shape),
            log_prob=lambda: np.full(len(action), -np.log(high - low).sum()),
        )

    def for_environment(self, action: Array) -> Array:
        return action


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


# ---- facts ---------------------------------------------------------------------------------------


def policy_facts(distribution: Distribution, params: Array, action: Array) -> dict[str, Callable[[], Array]]:
    """Log-probability of the action, and `probabilities` or `mean` and `std` of the distribution."""

    def of(fact: Callable[..., Tensor], *more: Array) -> Callable[[], Array]:
        return lambda: fact(*(torch.from_numpy(np.ascontiguousarray(x)) for x in (params, *more))).numpy()

    facts = {name: of(fact) for name, fact in distribution.facts().items()}
    return {"log_prob": of(distribution.log_prob, action), **facts}


def q_facts(q_BA: Array, action: Array, epsilon: float) -> Facts:
    """Facts about an epsilon-greedy choice; actions of equal value share the probability of the best."""

    def probabilities() -> Array:
        best_BA = q_BA == q_BA.max(-1, keepdims=True)
        return epsilon / q_BA.shape[1] + (1 - epsilon) * best_BA / best_BA.sum(-1, keepdims=True)

    def log_prob() -> Array:
        return np.log(probabilities()[np.arange(len(action)), action])

    return Facts(q=lambda: q_BA, value=lambda: q_BA.max(-1), probabilities=probabilities, log_prob=log_prob)


def smallest_q(outputs: Outputs, action: Array) -> Array:
    """Of an ensemble's values of this action the smallest, [B]."""
    return outputs("critic", action.reshape(outputs.batch, -1)).min(0)[..., 0]


def drawn(distribution: Distribution, params: Array, rng: np.random.Generator | None) -> Array:
    """A sample, or without a random stream the mode."""
    return distribution.mode_numpy(params) if rng is None else distribution.sample_numpy(params, rng)


def check_bounded(name: str, space: gym.Space, *, discrete: bool) -> None:
    """Refuse actions that cannot be scaled to the unit box."""
    if discrete and isinstance(space, gym.spaces.Discrete):
        return
    kinds = "Discrete or a bounded Box" if discrete else "a bounded Box"
    box = isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if not (box and np.isfinite([space.low, space.high]).all()):  # type: ignore[attr-defined]
        raise ConfigError("algorithm.name", f"{name} needs {kinds} as actions, not {space}", "use ppo")
