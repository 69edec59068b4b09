"""Diffusion (Ho et al. 2020, arXiv:2006.11239; Song et al. 2021, arXiv:2010.02502): noise in, step by step out again.

A sample at time t is sqrt(signal_t) x + sqrt(1 - signal_t) noise, where `signal` falls from 1 to 0. A network says
which noise is in it; what that leaves of the sample is clipped to [-1, 1], and the sample of an earlier time is drawn.

Shapes: S times of a schedule, `...` samples, whose signals broadcast against them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

MOST_NOISE = 0.999
"""Largest share of the signal that one time takes away (Nichol & Dhariwal 2021)."""
LEAST_VARIANCE = 1e-20


def squared_cosine(times: int) -> Tensor:
    """Signal at each of the times, [S]: cos^2 of a quarter turn (Nichol & Dhariwal 2021, arXiv:2102.09672)."""
    at = torch.arange(times + 1, dtype=torch.float64) / times
    cosine = ((at + 0.008) / 1.008 * math.pi / 2).cos().square()
    beta = (1 - cosine[1:] / cosine[:-1]).clamp(max=MOST_NOISE)
    return (1 - beta).cumprod(0).float()


def noised(x: Tensor, noise: Tensor, signal: Tensor) -> Tensor:
    """Samples with noise in them."""
    return signal.sqrt() * x + (1 - signal).sqrt() * noise


def without(noise: Tensor, x: Tensor, signal: Tensor) -> Tensor:
    """What a sample is without its noise, clipped to [-1, 1]: data are scaled to that."""
    return ((x - (1 - signal).sqrt() * noise) / signal.sqrt()).clamp(-1.0, 1.0)


def ddim_step(x: Tensor, noise: Tensor, signal: Tensor, after: Tensor) -> Tensor:
    """The sample at an earlier time, whose signal is `after`: without new noise (DDIM, eta = 0)."""
    return after.sqrt() * without(noise, x, signal) + (1 - after).sqrt() * noise


def ddpm_step(x: Tensor, noise: Tensor, signal: Tensor, after: Tensor, fresh: Tensor) -> Tensor:
    """The sample at an earlier time, from the posterior with `fresh` standard normal noise (DDPM, fixed small)."""
    kept = signal / after
    clean = after.sqrt() * (1 - kept) / (1 - signal) * without(noise, x, signal)
    variance = ((1 - after) / (1 - signal) * (1 - kept)).clamp(min=LEAST_VARIANCE)
    deviation = torch.where(after < 1, variance.sqrt(), 0.0)
    return clean + kept.sqrt() * (1 - after) / (1 - signal) * x + deviation * fresh


class Descent(NamedTuple):
    """Times at which a sample is freed from noise, the noisiest first, with the signal then and after it, [S]."""

    time: Tensor
    signal: Tensor
    after: Tensor


def descent(signal: Tensor, steps: int) -> Descent:
    """`steps` evenly spaced times of a schedule; after the last one the signal is 1."""
    time = torch.arange(0, steps).mul(len(signal) // steps).flip(0)
    found = signal[time]
    return Descent(time, found, torch.cat([found[1:], torch.ones(1)]))
