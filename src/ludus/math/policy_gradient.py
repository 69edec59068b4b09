"""The formulas of policy gradients: returns and advantages of collected steps (numpy), terms of a loss (torch).

Shapes: T time, B environments (or any further dimensions). `next_value[t]` is the value of the observation that step t
led to: the true final one where an episode ended, not the first one after a reset.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ludus.types import Array

Scalar = float | Tensor
"""A number; in a compiled update a tensor without dimensions, so that a schedule may change it between two calls."""


def scan_TB(decay_TB: Array, x_TB: Array) -> Array:
    """y[t] = x[t] + decay[t] * y[t+1], with y[T] = 0; log2(T) array operations instead of T."""
    y_TB, product_TB = x_TB.copy(), decay_TB.copy()
    steps, shift = len(y_TB), 1
    while shift < steps:
        # y[t] now holds the sum over [t, t+shift), product[t] the decay across it
        y_TB[:-shift] += product_TB[:-shift] * y_TB[shift:]
        product_TB[:-shift] *= product_TB[shift:]
        shift *= 2
    return y_TB


def gae(
    reward_TB: Array,
    value_TB: Array,
    next_value_TB: Array,
    terminated_TB: Array,
    done_TB: Array,
    gamma: float,
    lam: float,
) -> tuple[Array, Array]:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16): (advantage, value target), float32.

    delta[t] = r[t] + gamma (1 - terminated[t]) V'[t] - V[t];  A[t] = delta[t] + gamma lam (1 - done[t]) A[t+1]
    """
    gamma32 = np.float32(gamma)
    delta_TB = reward_TB + gamma32 * np.where(terminated_TB, np.float32(0), next_value_TB) - value_TB
    decay_TB = np.where(done_TB, np.float32(0), np.float32(gamma * lam))
    advantage_TB = scan_TB(decay_TB, delta_TB)
    return advantage_TB, advantage_TB + value_TB


def explained_variance(advantage_TB: Array, target_TB: Array) -> float:
    """How much of the variance of the value targets the old values predicted; advantage = target - value."""
    return float(1 - advantage_TB.var() / (target_TB.var() + 1e-8))


# ---- losses --------------------------------------------------------------------------------------


def within(x: Tensor, low: Scalar, high: Scalar) -> Tensor:
    """`x` cut at both bounds."""
    return x.clamp(low, high)  # type: ignore[arg-type]  # both are floats, or both are tensors


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: Scalar) -> Tensor:
    """-mean min(r A, clip(r, 1 - eps, 1 + eps) A) (Schulman et al. 2017, eq. 7)."""
    return -torch.minimum(ratio * advantage, within(ratio, 1 - clip, 1 + clip) * advantage).mean()


def clipped_value_loss(
    value: Tensor, old_value: Tensor, target: Tensor, clip: Scalar, weight: Tensor | None = None
) -> Tensor:
    """mean max((V - G)^2, (clip(V, V_old - eps, V_old + eps) - G)^2)."""
    near = value.clamp(old_value - clip, old_value + clip)
    return weighted_mean(torch.maximum((value - target).square(), (near - target).square()), weight)


def weighted_mean(x: Tensor, weight: Tensor | None) -> Tensor:
    """mean w x, for weights with a mean of 1; none: the plain mean."""
    return x.mean() if weight is None else (weight * x).mean()


def normalized(advantage: Tensor, weight: Tensor | None = None) -> Tensor:
    """Zero mean and unit deviation over what has a weight; a single value becomes 0."""
    if weight is None:
        return (advantage - advantage.mean()) / (advantage.std(correction=min(1, advantage.numel() - 1)) + 1e-8)
    real = (weight > 0).to(advantage.dtype)
    count = real.sum()
    centred = advantage - (real * advantage).sum() / count.clamp(min=1)
    variance = (real * centred.square()).sum() / (count - 1).clamp(min=1)
    return centred / (variance.sqrt() + 1e-8)
