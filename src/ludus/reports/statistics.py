"""Statistics of a few runs: interquartile mean, bootstrap and Student intervals, curves on a common grid.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", gives the reasons for the
interquartile mean and the stratified bootstrap. Letters: N values (runs), R resamples, G grid points.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from ludus.types import Array

LEVEL = 0.95
_NORMAL_FROM = 500


def iqm(values: Array | Sequence[float], axis: int = -1) -> Array:
    """Mean of what is left when the lowest and the highest quarter (rounded down) are dropped."""
    ordered = np.sort(np.asarray(values, np.float64), axis=axis)
    count = ordered.shape[axis]
    if count == 0:
        raise ValueError("an interquartile mean needs at least one value")
    return np.take(ordered, range(count // 4, count - count // 4), axis=axis).mean(axis=axis)


def mean(values: Array | Sequence[float], axis: int = -1) -> Array:
    """The mean, for where a statistic is chosen."""
    return np.mean(np.asarray(values, np.float64), axis=axis)


def stratified_bootstrap(
    strata: Sequence[Sequence[float] | Array],
    statistic: Callable[..., Array] = iqm,
    n: int = 2000,
    seed: int = 0,
    level: float = LEVEL,
) -> tuple[float, float]:
    """Percentile interval of a statistic of all values; each stratum (task) is resampled by itself.

    One value in every stratum cannot vary: the interval is then that point.
    """
    low, high = bootstrap_band(
        [np.asarray(values, np.float64)[:, None] for values in strata], statistic, n, seed, level
    )
    return float(low[0]), float(high[0])


def bootstrap_band(
    strata: Sequence[Array],
    statistic: Callable[..., Array] = iqm,
    n: int = 2000,
    seed: int = 0,
    level: float = LEVEL,
) -> tuple[Array, Array]:
    """The same for whole curves: strata of [N, G], band of [G]; a resampled run keeps its curve together."""
    rng = np.random.default_rng(seed)
    drawn = [
        values_NG[rng.integers(len(values_NG), size=(n, len(values_NG)))] for values_NG in strata if len(values_NG)
    ]
    if not drawn:
        raise ValueError("a bootstrap needs at least one value")
    values_RG = statistic(np.concatenate(drawn, axis=1), axis=1)
    tail = (1 - level) / 2
    low_G, high_G = np.quantile(values_RG, (tail, 1 - tail), axis=0)
    return low_G, high_G


def mean_ci(values: Sequence[float] | Array, level: float = LEVEL) -> tuple[float, float]:
    """Student's interval of the mean; infinite for a single value."""
    values_N = np.asarray(values, np.float64)
    count = len(values_N)
    if count == 0:
        raise ValueError("an interval needs at least one value")
    if count == 1:
        return -math.inf, math.inf
    centre = float(values_N.mean())
    half = student_quantile((1 + level) / 2, count - 1) * float(values_N.std(ddof=1)) / math.sqrt(count)
    return centre - half, centre + half


def student_quantile(probability: float, freedom: int) -> float:
    """Quantile above one half of Student's t, by bisection of its closed form for whole degrees of freedom."""
    if freedom >= _NORMAL_FROM:
        z = statistics.NormalDist().inv_cdf(probability)
        return z + (z**3 + z) / (4 * freedom)  # Cornish-Fisher: off by less than 1e-5 from here on
    low, high = 0.0, 1.0
    while _student_cdf(high, freedom) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def on_grid(steps: Sequence[float] | Array, values: Sequence[float] | Array, grid_G: Array) -> Array:
    """A curve at common positions: straight between its points, none (NaN) before the first, held after the last.

    Points that are no number are left out; of several at one position the last one counts.
    """
    steps_N, values_N = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    good = np.isfinite(steps_N) & np.isfinite(values_N)
    steps_N, values_N = steps_N[good], values_N[good]
    if len(steps_N) == 0:
        return np.full(len(grid_G), np.nan)
    unique, from_the_end = np.unique(steps_N[::-1], return_index=True)
    return np.interp(grid_G, unique, values_N[::-1][from_the_end], left=np.nan)


def _student_cdf(t: float, freedom: int) -> float:
    """Abramowitz & Stegun 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine, odd = math.sin(angle), math.cos(angle), freedom % 2
    term, total = cosine if odd else 1.0, 0.0
    for j in range(1, freedom // 2 + 1):
        total += term
        term *= cosine**2 * (2 * j / (2 * j + 1) if odd else (2 * j - 1) / (2 * j))
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return 0.5 + inside / 2
