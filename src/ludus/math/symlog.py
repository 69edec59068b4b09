"""Large and small numbers on one scale (Hafner et al. 2023, arXiv:2301.04104): symlog, and two-hot targets over bins.

Shapes: `...` any leading dimensions, K bins.
"""

from __future__ import annotations

import torch
from torch import Tensor


def symlog(x: Tensor) -> Tensor:
    """sign(x) log(1 + |x|)"""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """sign(x) (exp|x| - 1), the inverse of `symlog`."""
    return x.sign() * x.abs().expm1()


def symexp_bins(limit: float, count: int) -> Tensor:
    """`count` bins that `symlog` spaces evenly between -limit and limit, exactly symmetric around zero."""
    if count % 2:
        half = symexp(torch.linspace(-limit, 0.0, count // 2 + 1, dtype=torch.float64)).float()
        return torch.cat([half, -half[:-1].flip(0)])
    half = symexp(torch.linspace(-limit, limit, count, dtype=torch.float64)[: count // 2]).float()  # none is zero
    return torch.cat([half, -half.flip(0)])


def two_hot(y: Tensor, bins_K: Tensor) -> tuple[Tensor, Tensor]:
    """(lower bin, weight of the bin above it) of numbers [...]: their mean over both bins is the number itself.

    Numbers beyond the last bins count as these.
    """
    y = y.clamp(bins_K[0], bins_K[-1])
    below = (torch.searchsorted(bins_K, y.contiguous(), right=True) - 1).clamp(0, len(bins_K) - 2)
    low, high = bins_K[below], bins_K[below + 1]
    return below, (y - low) / (high - low)


def two_hot_cross_entropy(logits_K: Tensor, y: Tensor, bins_K: Tensor) -> Tensor:
    """Cross-entropy [...] of softmax(logits) against the two-hot distribution of `y`."""
    below, weight = two_hot(y, bins_K)
    at_below, at_above = logits_K.gather(-1, torch.stack([below, below + 1], -1)).unbind(-1)
    return logits_K.logsumexp(-1) - torch.lerp(at_below, at_above, weight)


def two_hot_mean(logits_K: Tensor, bins_K: Tensor) -> Tensor:
    """Expected number [...]; opposite bins are subtracted first, so that equal logits mean exactly zero."""
    probabilities, half = logits_K.softmax(-1), len(bins_K) // 2
    return (probabilities[..., -half:] - probabilities[..., :half].flip(-1)) @ bins_K[-half:]
