"""Numbers about an episode that follow from its steps: returns to go, advantages, entropy.

Shapes: T steps, A actions.
"""

from __future__ import annotations

import math

import numpy as np

from ludus.types import Array, Tree, tree_leaves


def returns_to_go(reward_T: Array, terminated_T: Array, done_T: Array, next_value_T: Array, gamma: float) -> Array:
    """What each step still brought, discounted; where an episode was cut off, the value of where it was stands in."""
    found, ahead = np.zeros(len(reward_T)), 0.0
    for t in range(len(reward_T) - 1, -1, -1):
        if done_T[t] or t == len(reward_T) - 1:
            ahead = 0.0 if terminated_T[t] else float(np.nan_to_num(next_value_T[t]))
        found[t] = ahead = float(reward_T[t]) + gamma * ahead
    return found


def td_errors(reward_T: Array, terminated_T: Array, value_T: Array, next_value_T: Array, gamma: float) -> Array:
    """r + gamma V' - V."""
    return reward_T + gamma * np.where(terminated_T, 0.0, next_value_T) - value_T


def generalized_advantages(error_T: Array, done_T: Array, gamma: float, lam: float) -> Array:
    """The TD errors from each step on, each later one discounted by gamma and lambda once more."""
    found, ahead = np.zeros(len(error_T)), 0.0
    for t in range(len(error_T) - 1, -1, -1):
        found[t] = ahead = float(error_T[t]) + (0.0 if done_T[t] else gamma * lam * ahead)
    return found


def entropy(probabilities_TA: Array | None, std_TA: Array | None) -> Array | None:
    """Entropy of the policy at each step: of discrete actions, or of a Gaussian before it is squashed or clipped."""
    if probabilities_TA is not None:
        p = np.asarray(probabilities_TA, np.float64)
        return -(p * np.log(np.maximum(p, 1e-300))).reshape(len(p), -1).sum(1)
    if std_TA is not None:
        log_std = np.log(np.maximum(np.asarray(std_TA, np.float64), 1e-300)).reshape(len(std_TA), -1)
        return (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(1)
    return None


def norm(state: Tree) -> float:
    """Length of a memory state, all its real numbers together; NaN if it has none."""
    parts = [np.asarray(leaf, np.float64).ravel() for leaf in tree_leaves(state) if _real(leaf)]
    return float(np.linalg.norm(np.concatenate(parts))) if parts else math.nan


def _real(leaf: object) -> bool:
    return "float" in str(getattr(leaf, "dtype", ""))
