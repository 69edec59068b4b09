"""Adaptive gradient clipping (Brock et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LEAST_NORM = 1e-3  # of a tensor, so that one that began at zero can grow


@torch.no_grad()
def clip_adaptively(grads: Sequence[Tensor], thetas: Sequence[Tensor], share: float) -> None:
    """Scale gradients down, in place, whose norm is more than `share` of their tensor's."""
    norm, allowed = (torch.stack(torch._foreach_norm(list(tensors))) for tensors in (grads, thetas))
    factor = (norm / (share * allowed.clamp(min=LEAST_NORM))).clamp(min=1.0).reciprocal()
    torch._foreach_mul_(list(grads), list(factor.unbind()))
