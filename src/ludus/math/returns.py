"""Returns and advantages over time-first arrays.

Shapes: T time, B environments (or any further dimensions). `next_value[t]` is the value of the observation that step t
led to: the true final one where an episode ended, not the first one after a reset. Collected data are numpy; what a
world model differentiates through is a torch function without in-place writes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ludus.types import Array


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


def reward_to_go(reward_TB: Array, next_value_TB: Array, terminated_TB: Array, done_TB: Array, gamma: float) -> Array:
    """Discounted return from each step on (`mc:rtg`), float32.

    G[t] = r[t] + gamma G[t+1]; where a trajectory is cut without termination (truncation, end of the rollout) V'[t]
    stands for G[t+1], and zeros there give the plain Monte Carlo return.
    """
    cut_TB = done_TB & ~terminated_TB
    cut_TB[-1] |= ~done_TB[-1]
    x_TB = reward_TB + np.float32(gamma) * np.where(cut_TB, next_value_TB, np.float32(0))
    return scan_TB(np.where(done_TB, np.float32(0), np.float32(gamma)), x_TB)


def episode_returns(
    reward_TB: Array, next_value_TB: Array, terminated_TB: Array, done_TB: Array, gamma: float
) -> Array:
    """Discounted return of the whole episode at each of its steps (`mc:episode`), float32.

    An episode that began before this rollout counts from the rollout's first step.
    """
    rtg_TB = reward_to_go(reward_TB, next_value_TB, terminated_TB, done_TB, gamma)
    index_TB = np.zeros(done_TB.shape, np.int64)
    starts = np.arange(1, len(done_TB)).reshape(-1, *(1,) * (done_TB.ndim - 1))
    index_TB[1:] = np.where(done_TB[:-1], starts, 0)
    return np.take_along_axis(rtg_TB, np.maximum.accumulate(index_TB, axis=0), axis=0)


def scan_tensor(decay_T: Tensor, x_T: Tensor) -> Tensor:
    """`scan_TB` for tensors: differentiable, nothing in place."""
    y_T, product_T = x_T, decay_T
    shift = 1
    while shift < len(x_T):
        y_T = torch.cat((y_T[:-shift] + product_T[:-shift] * y_T[shift:], y_T[-shift:]))
        product_T = torch.cat((product_T[:-shift] * product_T[shift:], product_T[-shift:]))
        shift *= 2
    return y_T


def lambda_returns(reward_T: Tensor, discount_T: Tensor, next_value_T: Tensor, lam: float) -> Tensor:
    """G[t] = r[t] + discount[t] ((1 - lam) V'[t] + lam G[t+1]), bootstrapped from the last V'."""
    mix_T = torch.full_like(next_value_T, 1 - lam)
    mix_T[-1] = 1.0
    return scan_tensor(discount_T * lam, reward_T + discount_T * mix_T * next_value_T)


def n_step_returns(reward_T: Tensor, discount_T: Tensor, next_value_T: Tensor, n: int) -> Tensor:
    """G[t] = r[t] + d[t] r[t+1] + ... + d[t]..d[t+n-1] V'[t+n-1]; fewer terms where the sequence ends first."""
    steps = len(reward_T)
    reward = torch.cat((reward_T, torch.zeros_like(reward_T[:1]).expand(n - 1, *reward_T.shape[1:])))
    discount = torch.cat((discount_T, torch.ones_like(discount_T[:1]).expand(n - 1, *discount_T.shape[1:])))
    value = torch.cat((next_value_T, next_value_T[-1:].expand(n - 1, *next_value_T.shape[1:])))
    returns = value[n - 1 :]
    for i in reversed(range(n)):
        returns = reward[i : i + steps] + discount[i : i + steps] * returns
    return returns


def vtrace(
    value_T: Tensor,
    next_value_T: Tensor,
    reward_T: Tensor,
    discount_T: Tensor,
    ratio_T: Tensor,
    lam: float = 1.0,
    clip_rho: float = 1.0,
    clip_pg_rho: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace (Espeholt et al. 2018, eq. 1): (value target, policy-gradient advantage).

    v[t] - V[t] = rho[t] (r[t] + d[t] V'[t] - V[t]) + d[t] c[t] (v[t+1] - V[t+1])
    with rho = min(clip_rho, ratio), c = lam min(1, ratio)
    """
    delta_T = ratio_T.clamp(max=clip_rho) * (reward_T + discount_T * next_value_T - value_T)
    target_T = value_T + scan_tensor(discount_T * lam * ratio_T.clamp(max=1.0), delta_T)
    following_T = torch.cat((lam * target_T[1:] + (1 - lam) * value_T[1:], next_value_T[-1:]))
    advantage_T = ratio_T.clamp(max=clip_pg_rho) * (reward_T + discount_T * following_T - value_T)
    return target_T, advantage_T
