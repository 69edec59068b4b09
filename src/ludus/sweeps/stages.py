"""Stages of a search: points of a coarse grid, then what the sampler chooses, then what it chooses near the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ludus.sweeps.space import EDGE, Latent, Parameter

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

LEVELS = (1 / 6, 1 / 2, 5 / 6)
"""Where the coarse grid divides a range."""
NEAR = 1 / 8
"""How far from the best a fine trial may be, as a part of the range."""


def coarse_points(parameters: Sequence[Parameter], count: int, seed: int) -> list[dict[str, Latent]]:
    """Different points of the coarse grid, drawn at random; all of them if there are no more than `count`."""
    axes = [_levels(one) for one in parameters]
    shape = [len(axis) for axis in axes]
    whole = math.prod(shape)
    random = np.random.default_rng([seed, count])
    drawn = random.permutation(whole)[:count] if whole <= 1 << 20 else random.integers(whole, size=count)
    points = [np.unravel_index(int(index), shape) for index in drawn]
    return [{one.key: axis[int(i)] for one, axis, i in zip(parameters, axes, point, strict=True)} for point in points]


def _levels(one: Parameter) -> list[Latent]:
    if one.kind == "choice":
        return one.points()
    low, high, log = _range(one)
    whole = one.kind in ("int", "log_int")
    found = [_at(low, high, share, log=log) for share in LEVELS]
    return sorted({round(level) for level in found}) if whole else list(found)


def near(parameters: Sequence[Parameter], best: Mapping[str, Latent]) -> dict[str, BaseDistribution]:
    """What a fine trial may be: the best's choices, and ranges around its numbers."""
    return {one.key: _near(one, best[one.key]) for one in parameters}


def _near(one: Parameter, best: Latent) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if one.kind == "choice" and not one.probabilities:
        return CategoricalDistribution([int(best)])
    low, high, log = _range(one)
    center = _share(low, high, best, log=log)
    ends = [min(max(_at(low, high, center + side * NEAR, log=log), low), high) for side in (-1, 1)]
    if one.kind in ("int", "log_int"):
        return IntDistribution(math.floor(ends[0]), math.ceil(ends[1]), log=log)
    return FloatDistribution(ends[0], ends[1], log=log)


def contains(space: Mapping[str, BaseDistribution], latent: Mapping[str, Latent]) -> bool:
    """Whether a trial is one of those that a space has."""
    return all(
        latent[key] in one.choices if hasattr(one, "choices") else one.low <= latent[key] <= one.high  # type: ignore[attr-defined]
        for key, one in space.items()
    )


def _range(one: Parameter) -> tuple[float, float, bool]:
    if one.kind in ("choice", "normal", "log_normal"):  # a quantile
        return EDGE, 1 - EDGE, False
    return one.low, one.high, one.kind.startswith("log")


def _at(low: float, high: float, share: float, *, log: bool) -> float:
    return math.exp(_at(math.log(low), math.log(high), share, log=False)) if log else low + share * (high - low)


def _share(low: float, high: float, number: float, *, log: bool) -> float:
    if log:
        low, high, number = math.log(low), math.log(high), math.log(number)
    return (number - low) / (high - low)
