"""Is a policy that has learned nothing yet willing to try everything?

Shapes: B environments, A actions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ludus.types import Array

SHARE = 0.7
"""Smallest share of the maximum entropy of discrete actions."""
NARROW, WIDE = 1 / 4, 8.0
"""Smallest and largest width of sampled actions, relative to the action range."""
ASIDE = 0.5
"""Farthest mean from the middle of the action range, relative to half of it."""
WIDTH = math.sqrt(2 * math.pi * math.e)
"""Width of the uniform distribution that is as uncertain as a Gaussian of deviation 1."""
TIP = "use a small gain for the last layer of the actor; for bounded actions the wrapper rescale_action"


class PolicyFinding(NamedTuple):
    """What is wrong with a first policy."""

    key: str
    value: float
    problem: str


def far_from_uniform(space: gym.Space, info: Mapping[str, Array]) -> PolicyFinding | None:
    """What keeps a first policy from trying everything; `info` is what it tells about its decisions."""
    if "probabilities" in info:
        return _choices(space, info["probabilities"])
    if "mean" in info and isinstance(space, spaces.Box) and space.is_bounded() and (space.high > space.low).all():
        return _range(space, info["mean"], info["std"])
    return None


def _choices(space: gym.Space, probabilities_BA: Array) -> PolicyFinding | None:
    if isinstance(space, spaces.MultiBinary):
        sizes = [2] * probabilities_BA.shape[-1]
        probabilities_BA = np.stack([probabilities_BA, 1 - probabilities_BA], -1)
    else:
        sizes = [int(n) for n in np.ravel(getattr(space, "nvec", getattr(space, "n", 1)))]
    most = sum(map(math.log, sizes))
    uncertain = -probabilities_BA * np.log(np.maximum(probabilities_BA, 1e-12))
    entropy = float(uncertain.sum() / len(probabilities_BA))
    if entropy >= SHARE * most:
        return None
    problem = f"the first policy is far from uniform: entropy {entropy:.2f} of at most {most:.2f}"
    return PolicyFinding("train/policy/entropy", entropy, problem)


def _range(space: spaces.Box, mean: Array, std: Array) -> PolicyFinding | None:
    width = (space.high - space.low).astype(float)
    ratio = float(np.exp(np.log(WIDTH * std / width).mean()))
    spread = float(std.mean())
    if ratio < NARROW:
        problem = f"the first policy tries only {ratio:.0%} of the action range"
        return PolicyFinding("train/policy/std", spread, problem)
    if ratio > WIDE:
        problem = f"the first policy draws actions {ratio:.0f} times as wide as their range, so that most are clipped"
        return PolicyFinding("train/policy/std", spread, problem)
    aside = np.abs(mean - (space.high + space.low) / 2).mean(0) / (width / 2)
    if aside.max() <= ASIDE:
        return None
    at = tuple(int(i) for i in np.unravel_index(aside.argmax(), aside.shape))
    problem = f"the first policy prefers one end of the range of action {list(at)}: {aside[at]:.0%} off the middle"
    return PolicyFinding("train/policy/mean", float(mean.mean(0)[at]), problem)
