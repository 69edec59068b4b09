"""Rows of a rollout whose action was lost with its worker: no transitions, and nothing is learned from them."""

from __future__ import annotations

import numpy as np

from ludus.data.rollout import Rollout
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
