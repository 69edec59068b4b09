"""Refuses numbers of a rollout that are not finite, and names the first of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ludus.errors import EnvironmentFailed
from ludus.types import Array


def is_finite(values: Array) -> bool:
    """Whether all of them are; whole numbers always are."""
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def check_rollout(env: str, columns: Mapping[str, Array]) -> None:
    """Refuse columns [T, B, ...] of rewards and observations; `env` is the id of the environments."""
    for name, values in columns.items():
        if not is_finite(values):
            bad = ~np.isfinite(values).reshape(*values.shape[:2], -1).all(-1)
            t, b = (int(i) for i in np.argwhere(bad)[0])
            problem = f"{name} is not finite at step {t} of this rollout"
            raise EnvironmentFailed(f"{env}: environment {b}", problem, "check the environment")


def bad_action(env: str, action_B: Array) -> EnvironmentFailed:
    """The refusal of actions that are not finite."""
    b = int(np.flatnonzero(~np.isfinite(action_B).reshape(len(action_B), -1).all(-1))[0])
    problem, remedy = "the policy's action is not finite", "lower algorithm.lr or max_grad_norm"
    return EnvironmentFailed(f"{env}: environment {b}", problem, remedy)
