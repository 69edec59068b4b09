"""Facts about a decision, under the names that `ActResult.info` uses for all algorithms.

Shapes: B environments, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ludus.math.distributions import Distribution
from ludus.types import Array

if TYPE_CHECKING:
    from ludus.acting.actor import Outputs
    from ludus.acting.behaviour import Strategy

Makers = dict[str, Callable[[], Array]]
"""Name of a fact -> what computes it."""


class Facts(Mapping[str, Array]):
    """What can be told about a decision; each fact is computed when it is first read, with the weights of then."""

    def __init__(self, strategy: Strategy, outputs: Outputs, drawn: Array) -> None:
        self._decision = strategy, outputs, drawn

    @cached_property
    def _makers(self) -> Makers:
        strategy, outputs, drawn = self._decision
        return {name: cache(make) for name, make in strategy.facts(outputs, drawn).items()}

    def __getitem__(self, name: str) -> Array:
        return self._makers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def policy_facts(distribution: Distribution, params: Array, action: Array) -> Makers:
    """Log-probability of the action, and `probabilities` or `mean` and `std` of the distribution."""

    def of(fact: Callable[..., Tensor], *more: Array) -> Callable[[], Array]:
        return lambda: fact(*(torch.from_numpy(np.ascontiguousarray(x)) for x in (params, *more))).numpy()

    facts = {name: of(fact) for name, fact in distribution.facts().items()}
    return {"log_prob": of(distribution.log_prob, action), **facts}


def q_facts(q_BA: Array, action: Array, epsilon: float) -> Makers:
    """Facts about an epsilon-greedy choice; actions of equal value share the probability of the best."""

    def probabilities() -> Array:
        best_BA = q_BA == q_BA.max(-1, keepdims=True)
        return epsilon / q_BA.shape[1] + (1 - epsilon) * best_BA / best_BA.sum(-1, keepdims=True)

    def log_prob() -> Array:
        return np.log(probabilities()[np.arange(len(action)), action])

    value = {"q": lambda: q_BA, "value": lambda: q_BA.max(-1)}
    return {**value, "probabilities": probabilities, "log_prob": log_prob}


def lowest_q(outputs: Outputs, action: Array) -> Array:
    """Of an ensemble's values of this action the smallest, [B]."""
    return outputs("critic", action.reshape(outputs.batch, -1)).min(0)[..., 0]
