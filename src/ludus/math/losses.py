"""Loss terms as pure functions of tensors."""

from __future__ import annotations

import torch
from torch import Tensor

Scalar = float | Tensor
"""A number; in a compiled update a tensor without dimensions, so that a schedule may change it between two calls."""


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
