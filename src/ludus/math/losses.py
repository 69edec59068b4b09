"""Loss terms as pure functions of tensors."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

Number = TypeVar("Number", float, Tensor)
"""A constant, or a tensor where a schedule changes it between calls of one compiled graph."""


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: Number) -> Tensor:
    """-mean min(r A, clip(r, 1 - eps, 1 + eps) A) (Schulman et al. 2017, eq. 7)."""
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()


def clipped_value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: Number) -> Tensor:
    """mean max((V - G)^2, (clip(V, V_old - eps, V_old + eps) - G)^2)."""
    near = value.clamp(old_value - clip, old_value + clip)
    return torch.maximum((value - target).square(), (near - target).square()).mean()
