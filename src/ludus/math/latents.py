"""Latent states of world models: categorical with straight-through gradients, Gaussian, or on simplices.

Noise is standard normal and comes from outside, so that a compiled update draws the same numbers.
Shapes: `...` any leading dimensions, S variables, C classes; a flat latent is [..., S * C], Gaussian parameters
[..., 2 S] (mean, then raw deviation).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus


def mixed_log_probabilities(logits_SC: Tensor, unimix: float) -> Tensor:
    """Log-probabilities of (1 - unimix) softmax(logits) + unimix / C."""
    if not unimix:
        return logits_SC.log_softmax(-1)
    return (logits_SC.softmax(-1) * (1 - unimix) + unimix / logits_SC.shape[-1]).log()


def uniform(noise: Tensor) -> Tensor:
    """Uniform numbers in (0, 1) from standard normal ones."""
    return torch.special.ndtr(noise)


def one_hot_sample(log_p_SC: Tensor, uniform_S: Tensor) -> Tensor:
    """One-hot samples [..., S, C] by the inverse of the distribution function."""
    below = uniform_S.unsqueeze(-1) < log_p_SC.exp().cumsum(-1)[..., :-1]
    reached = torch.cat([below, below.new_ones(*below.shape[:-1], 1)], -1).to(log_p_SC.dtype)
    return torch.cat([reached[..., :1], reached[..., 1:] - reached[..., :-1]], -1)


def one_hot_mode(log_p_SC: Tensor) -> Tensor:
    """The likeliest class, one-hot."""
    return (log_p_SC.argmax(-1, keepdim=True) == torch.arange(log_p_SC.shape[-1], device=log_p_SC.device)).to(
        log_p_SC.dtype
    )


def straight_through(one_hot: Tensor, log_p: Tensor) -> Tensor:
    """The sample, with the gradient of its probabilities."""
    probabilities = log_p.exp()
    return one_hot + (probabilities - probabilities.detach())


def categorical_kl(log_p_SC: Tensor, log_q_SC: Tensor) -> Tensor:
    """KL(p || q) [...], summed over the variables."""
    return (log_p_SC.exp() * (log_p_SC - log_q_SC)).sum((-2, -1))


def gaussian_split(params_2S: Tensor, min_std: float) -> tuple[Tensor, Tensor]:
    """(mean, deviation) [..., S]; the deviation is softplus(raw) + min_std."""
    mean, raw = params_2S.chunk(2, -1)
    return mean, softplus(raw) + min_std


def gaussian_kl(mean_p: Tensor, std_p: Tensor, mean_q: Tensor, std_q: Tensor) -> Tensor:
    """KL(p || q) [...] of diagonal Gaussians, summed over the variables."""
    ratio = std_p / std_q
    return (0.5 * (ratio.square() + ((mean_p - mean_q) / std_q).square() - 1) - ratio.log()).sum(-1)


def simplicial(x: Tensor, group: int) -> Tensor:
    """SimNorm (Hansen et al. 2024, arXiv:2310.16828): softmax over groups of `group` numbers.

    A group is every (Z / group)-th number, not a few neighbours: networks do not care, and it is twenty times as fast.
    """
    return x.unflatten(-1, (group, -1)).softmax(-2).flatten(-2)
