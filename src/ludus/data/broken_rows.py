"""Rows of a rollout whose action was lost with its worker: no transitions, and nothing is learned from them."""

from __future__ import annotations

import numpy as np

from ludus.data.rollout import Rollout
from ludus.math.values import episode_returns
from ludus.types import Array


def weight_of(rollout: Rollout) -> Array | None:
    """[T, B] float32 of mean 1 that gives broken rows weight 0; None: all rows weigh the same."""
    if rollout.broken is None:
        return None
    real = (~rollout.broken).astype(np.float32)
    return real * np.float32(real.size / max(real.sum(), 1.0))


def credited(rollout: Rollout, value_TB: Array) -> tuple[Array, Array]:
    """(reward, terminated) for estimators of returns, with an error of 0 in broken rows.

    A broken row ends its episode with the estimated value of its state as reward.
    """
    if rollout.broken is None:
        return rollout.reward, rollout.terminated
    return np.where(rollout.broken, value_TB, rollout.reward), rollout.terminated | rollout.broken


def in_finished_episodes(rollout: Rollout) -> Array:
    """[T, B] float32: 1 for steps whose episode ended in this rollout, 0 where it goes on or is broken."""
    weight = np.flip(np.logical_or.accumulate(np.flip(rollout.done, 0), 0), 0).astype(np.float32)
    if rollout.broken is None:
        return weight
    broken = rollout.broken.astype(np.float32)
    lost = episode_returns(broken, np.zeros_like(broken), rollout.terminated, rollout.done, 1.0)
    return weight * (lost == 0)
