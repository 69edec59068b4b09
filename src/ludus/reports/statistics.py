"""Statistics of a few runs: interquartile mean, bootstrap intervals, probability of improvement, curves on a grid.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", gives the reasons for the
interquartile mean, the stratified bootstrap and the probability of improvement. Letters: N values (runs), R resamples,
G grid points, X and Y values of two groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ludus.types import Array

LEVEL = 0.95


def iqm(values: Array | Sequence[float], axis: int = -1) -> Array:
    """Interquartile mean: drops the lowest and the highest quarter (rounded down) of the values."""
    ordered = np.sort(np.asarray(values, np.float64), axis=axis)
    count = ordered.shape[axis]
    if count == 0:
        raise ValueError("an interquartile mean needs at least one value")
    return np.take(ordered, range(count // 4, count - count // 4), axis=axis).mean(axis=axis)


def stratified_bootstrap(
    strata: Sequence[Sequence[float] | Array], statistic: Callable[..., Array] = iqm, n: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval; each stratum (task) is resampled separately, so that one value gives a point."""
    columns = [np.asarray(values, np.float64)[:, None] for values in strata]
    low, high = bootstrap_band(columns, statistic, n, seed)
    return float(low[0]), float(high[0])


def bootstrap_band(
    strata: Sequence[Array], statistic: Callable[..., Array] = iqm, n: int = 2000, seed: int = 0
) -> tuple[Array, Array]:
    """The same for curves: strata of [N, G], bounds of [G]; whole curves are resampled."""
    rng = np.random.default_rng(seed)
    drawn = [
        values_NG[rng.integers(len(values_NG), size=(n, len(values_NG)))] for values_NG in strata if len(values_NG)
    ]
    if not drawn:
        raise ValueError("a bootstrap needs at least one value")
    return _interval(statistic(np.concatenate(drawn, axis=1), axis=1))


def _interval(values_RG: Array) -> tuple[Array, Array]:
    """Percentiles over resamples."""
    tail = (1 - LEVEL) / 2
    low_G, high_G = np.quantile(values_RG, (tail, 1 - tail), axis=0)
    return low_G, high_G


def probability_of_improvement(
    strata: Sequence[tuple[Sequence[float] | Array, Sequence[float] | Array]], n: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """The probability that a run X beats a run Y, a tie counting half, as a mean over tasks, and its 95 % interval.

    Each stratum (task) has the values of X and those of Y; both are resampled, each task separately.
    """
    rng = np.random.default_rng(seed)
    points, drawn_R = [], np.zeros(n)
    for x, y in strata:
        x_N, y_N = np.asarray(x, np.float64)[:, None], np.asarray(y, np.float64)
        wins_XY = (x_N > y_N) + 0.5 * (x_N == y_N)
        points.append(wins_XY.mean())
        wins_RY = wins_XY[rng.integers(len(x_N), size=(n, len(x_N)))].mean(axis=1)
        drawn_R += np.take_along_axis(wins_RY, rng.integers(len(y_N), size=(n, len(y_N))), axis=1).mean(axis=1)
    low, high = _interval(drawn_R / len(points))
    return float(np.mean(points)), float(low), float(high)


def on_grid(steps: Sequence[float] | Array, values: Sequence[float] | Array, grid_G: Array) -> Array:
    """A curve at the positions of a grid: linear between points, NaN before the first, constant after the last.

    Points that are not finite are ignored; of several points at one position the last counts.
    """
    steps_N, values_N = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    good = np.isfinite(steps_N) & np.isfinite(values_N)
    steps_N, values_N = steps_N[good], values_N[good]
    if len(steps_N) == 0:
        return np.full(len(grid_G), np.nan)
    unique, from_the_end = np.unique(steps_N[::-1], return_index=True)
    return np.interp(grid_G, unique, values_N[::-1][from_the_end], left=np.nan)
