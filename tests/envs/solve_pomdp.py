"""Exact returns of small finite POMDPs, by looking at every belief that can come up.

Shapes: N beliefs, S states, A actions, O observations.
"""

from __future__ import annotations

import numpy as np

from ludus.envs.suites.pomdp import PomdpModel
from ludus.types import Array


def solve(model: PomdpModel) -> float:
    """The best possible mean return; the beliefs that can come up must not be too many."""
    levels, edges = [model.start[None]], []
    for _ in range(model.horizon - 1):
        successor, weight, index = _look_ahead(model, levels[-1])
        levels.append(successor)
        edges.append((weight, index))
    value = (levels[-1] @ model.reward.T).max(axis=1)
    for belief, (weight, index) in zip(reversed(levels[:-1]), reversed(edges), strict=True):
        value = (belief @ model.reward.T + (weight * value[index]).sum(axis=2)).max(axis=1)
    return float(value[0])


def blind(model: PomdpModel, policy: Array) -> float:
    """Exact mean return of acting by fixed probabilities [A], whatever is seen."""
    at, total = model.start, 0.0
    for _ in range(model.horizon):
        total += float(policy @ model.reward @ at)
        at = np.einsum("a,s,ast->t", policy, at, model.transition)
    return total


def omniscient(model: PomdpModel) -> float:
    """Best mean return if the state were seen: no policy is better."""
    value = np.zeros(len(model.start))
    for _ in range(model.horizon):
        value = (model.reward + model.transition @ value).max(axis=0)
    return float(model.start @ value)


def _look_ahead(model: PomdpModel, belief: Array) -> tuple[Array, Array, Array]:
    """Distinct beliefs one step on; the probability [N, A, O] to come to each, and its number."""
    moved = np.einsum("ns,ast->nat", belief, model.transition)
    joint = np.einsum("nat,ato->naot", moved, model.emission)
    weight = joint.sum(axis=3)
    after = np.divide(joint, weight[..., None], out=np.zeros_like(joint), where=weight[..., None] > 0)
    flat, index = np.unique(after.reshape(-1, belief.shape[1]).round(9), axis=0, return_inverse=True)
    return flat, weight, index.reshape(weight.shape)
