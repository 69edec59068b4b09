"""Targets of values, as pure functions: Monte Carlo, Q-learning, categorical, n steps, lambda-returns, V-trace.

Torch functions write nothing in place: a world model differentiates through them.

Shapes: A actions, Z atoms, T rows, N sequences; leading dimensions are free where none is named.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ludus.math.policy_gradient import Scalar, scan_TB
from ludus.types import Array


def chosen(values_A: Tensor, action: Tensor) -> Tensor:
    """The value of the action taken; works for atoms [..., A, Z] too."""
    if values_A.ndim == action.ndim + 1:
        return values_A.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    index = action[..., None, None].expand(*action.shape, 1, values_A.shape[-1])
    return values_A.gather(-2, index).squeeze(-2)


def q_target(reward: Tensor, discount: Tensor, next_values_A: Tensor, selector_A: Tensor | None = None) -> Tensor:
    """r + discount * max_a Q(s', a); with a selector, the action is its choice (van Hasselt et al. 2016)."""
    best = (next_values_A if selector_A is None else selector_A).argmax(-1)
    return reward + discount * chosen(next_values_A, best)


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """Squared errors, of which positive ones weigh `expectile` and negative ones the rest (Newey and Powell 1987)."""
    return torch.where(error > 0, expectile, 1 - expectile) * error.square()


def project(support_Z: Tensor, probabilities: Tensor, atoms_K: Tensor) -> Tensor:
    """A distribution on [..., Z] points, moved onto fixed equidistant atoms (Bellemare et al. 2017, eq. 7)."""
    width = atoms_K[1] - atoms_K[0]
    points = support_Z.clamp(atoms_K[0], atoms_K[-1]).unsqueeze(-2)
    near = (1 - (points - atoms_K.unsqueeze(-1)).abs() / width).clamp(0, 1)
    return (near * probabilities.unsqueeze(-2)).sum(-1)


def n_step_rows(reward_TN: Array, terminated_TN: Array, mask_TN: Array, n: int, gamma: float) -> tuple[Array, ...]:
    """n-step returns within sequences: (return, discount, row to bootstrap from), each [T, N].

    Sums stop before a row without a step (an episode's end, the true final observation) and at the end of the sequence.
    """
    steps = len(reward_TN)
    total, discount = reward_TN.copy(), np.where(terminated_TN, 0.0, gamma).astype(np.float32)
    row = np.arange(1, steps + 1)[:, None] + np.zeros_like(mask_TN, np.int64)
    going = np.ones_like(mask_TN)
    for k in range(1, min(n, steps)):
        going[steps - k :] = False
        going[: steps - k] &= mask_TN[k:]
        ahead = np.zeros_like(reward_TN)
        ahead[: steps - k] = reward_TN[k:]
        ended = np.zeros_like(mask_TN)
        ended[: steps - k] = terminated_TN[k:]
        total += np.where(going, gamma**k * ahead, 0.0).astype(np.float32)
        discount = np.where(going, np.where(ended, 0.0, gamma ** (k + 1)), discount).astype(np.float32)
        row += going
    return total, discount, row


def at_rows(values_TN: Tensor, row_TN: Tensor) -> Tensor:
    """What each step bootstraps from: its sequence's values at another row."""
    return values_TN[row_TN, torch.arange(row_TN.shape[1], device=row_TN.device)]


def episode_discount(steps: int | None) -> float:
    """1 - 5 / steps, between 0.95 and 0.995 (Hansen et al. 2024): in longer episodes, what comes later counts more."""
    return 0.995 if steps is None else min(max(1 - 5 / steps, 0.95), 0.995)


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


def weighted_moments(x_TB: Array, weight_TB: Array) -> tuple[float, float]:
    """(mean, deviation) of numbers that count as much as their weight."""
    count = max(float(weight_TB.sum()), 1.0)
    mean = float((x_TB * weight_TB).sum()) / count
    return mean, float(np.sqrt((np.square(x_TB - mean) * weight_TB).sum() / count))


def scan_tensor(decay_T: Tensor, x_T: Tensor) -> Tensor:
    """`scan_TB` for tensors: differentiable, nothing in place."""
    y_T, product_T = x_T, decay_T
    shift = 1
    while shift < len(x_T):
        y_T = torch.cat((y_T[:-shift] + product_T[:-shift] * y_T[shift:], y_T[-shift:]))
        product_T = torch.cat((product_T[:-shift] * product_T[shift:], product_T[-shift:]))
        shift *= 2
    return y_T


def lambda_returns(reward_T: Tensor, discount_T: Tensor, next_value_T: Tensor, lam: Scalar) -> Tensor:
    """G[t] = r[t] + discount[t] ((1 - lam) V'[t] + lam G[t+1]), bootstrapped from the last V'."""
    one_T = torch.ones_like(next_value_T)
    mix_T = torch.cat((one_T[:-1] * (1 - lam), one_T[-1:]))
    return scan_tensor(discount_T * lam, reward_T + discount_T * mix_T * next_value_T)


def replayed_lambda_returns(
    reward_T: Tensor, last_T: Tensor, terminal_T: Tensor, bootstrap_T: Tensor, gamma: Scalar, lam: Scalar
) -> Tensor:
    """Lambda-returns [T] of replayed rows, over the ends of episodes; the last row's is its bootstrap value.

    Rewards and ends are those of the step that led to a row; at a row that ends an episode the return goes on with its
    bootstrap value, unless it is terminal.
    """
    live_T = (~terminal_T).to(reward_T.dtype) * gamma
    trace_T = (~last_T).to(reward_T.dtype) * lam
    x_T = reward_T + (1 - trace_T) * live_T * bootstrap_T
    decay_T = live_T * trace_T
    return scan_tensor(torch.cat([decay_T[1:], decay_T[:1]]), torch.cat([x_T[1:], bootstrap_T[-1:]]))


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
