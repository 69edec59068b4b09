"""Planning with a model over sequences of actions: draw candidates, keep the best, draw the next ones around them.

The cross-entropy method (Rubinstein 1999; Chua et al. 2018) weighs the best sequences alike; model predictive path
integral control (MPPI: Williams et al. 2016, as in Hansen et al. 2022, arXiv:2203.04955) weighs them by their return.

Shapes: B environments planned for at once, K candidates, P proposals, E best ones, H horizon, A action.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Score = Callable[[Tensor], Tensor]
"""Return [B, K] of candidates [H, B, K, A]."""


def best_of(candidates_HBKA: Tensor, score_BK: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(sequences [H, B, E, A], their returns [B, E]) of the best ones, the very best first."""
    horizon, batch, _, size = candidates_HBKA.shape
    score_BE, best_BE = score_BK.topk(count, dim=1)
    index = best_BE[None, :, :, None].expand(horizon, batch, count, size)
    return candidates_HBKA.gather(2, index), score_BE


def cross_entropy_method(score: Score, noise: Tensor, *, elites: int, init_std: float = 1.0) -> tuple[Tensor, Tensor]:
    """(mean, deviation) [H, B, A] of the last round's best sequences of actions between -1 and 1.

    `noise` [rounds, H, B, K, A] is standard normal.
    """
    _, horizon, batch, _, size = noise.shape
    mean = noise.new_zeros(horizon, batch, 1, size)
    std = torch.full_like(mean, init_std)
    for drawn in noise.unbind():
        candidates = (mean + std * drawn).clamp(-1.0, 1.0)
        chosen, _ = best_of(candidates, score(candidates), elites)
        mean = chosen.mean(2, keepdim=True)
        std = (chosen.var(2, keepdim=True, correction=0) + 1e-6).sqrt()
    return mean.squeeze(2), std.squeeze(2)


class Plan(NamedTuple):
    """What path integral control found."""

    mean: Tensor
    """[H, B, A], where the next plan begins."""
    std: Tensor
    """[H, B, A]"""
    best: Tensor
    """[H, B, E, A] sequences of the last round."""
    weight: Tensor
    """[B, E] of these, with a sum of 1."""
    value: Tensor
    """[B], their mean return by these weights."""


def path_integral(
    score: Score,
    noise: Tensor,
    start: Tensor,
    *,
    elites: int,
    max_std: float,
    min_std: float,
    temperature: float,
    momentum: float = 0.0,
    proposals: Tensor | None = None,
) -> Plan:
    """The plan around the best sequences, each weighing exp(temperature * return).

    The search begins around `start` [H, B, A] with deviation `max_std`; `noise` [rounds, H, B, K, A] is standard
    normal. `proposals` [H, B, P, A], those of a policy, compete with the candidates of every round. `momentum` is the
    share of the old mean in each new one.
    """
    mean = start.unsqueeze(2)
    std = torch.full_like(mean, max_std)
    for drawn in noise.unbind():
        candidates = (mean + std * drawn).clamp(-1.0, 1.0)
        if proposals is not None:
            candidates = torch.cat([proposals, candidates], 2)
        chosen, value_BE = best_of(candidates, score(candidates), elites)
        weight_BE = (temperature * value_BE).softmax(1)
        weight = weight_BE[None, :, :, None]
        center = (weight * chosen).sum(2, keepdim=True)
        std = (weight * (chosen - center).square()).sum(2, keepdim=True).sqrt().clamp(min_std, max_std)
        mean = torch.lerp(center, mean, momentum)
    return Plan(mean.squeeze(2), std.squeeze(2), chosen, weight_BE, (weight_BE * value_BE).sum(1))


def moved_on(plan_BHA: Tensor, first_B: Tensor) -> Tensor:
    """Where to begin one step later: the plan without its first action; zeros where an episode begins."""
    later = torch.cat([plan_BHA[:, 1:], torch.zeros_like(plan_BHA[:, :1])], 1)
    return later.masked_fill(first_B[:, None, None], 0.0)
