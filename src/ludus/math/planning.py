"""Planning with a model: the cross-entropy method (Rubinstein 1999; Chua et al. 2018) over sequences of actions.

Shapes: B environments planned for at once, K candidates, H horizon, A action.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def cross_entropy_method(
    score: Callable[[Tensor], Tensor], noise: Tensor, *, elites: int, init_std: float = 1.0
) -> tuple[Tensor, Tensor]:
    """(mean, deviation) [H, B, A] of the last round's best sequences of actions between -1 and 1.

    `noise` [rounds, H, B, K, A] is standard normal; `score` gives the return [B, K] of candidates [H, B, K, A].
    """
    _, horizon, batch, _, size = noise.shape
    mean = noise.new_zeros(horizon, batch, 1, size)
    std = torch.full_like(mean, init_std)
    for drawn in noise.unbind():
        candidates = (mean + std * drawn).clamp(-1.0, 1.0)
        best_BE = score(candidates).topk(elites, dim=1).indices
        index = best_BE[None, :, :, None].expand(horizon, batch, elites, size)
        chosen = candidates.gather(2, index)
        mean = chosen.mean(2, keepdim=True)
        std = (chosen.var(2, keepdim=True, correction=0) + 1e-6).sqrt()
    return mean.squeeze(2), std.squeeze(2)
