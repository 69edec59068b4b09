"""Known answers, brute force and coverage of the statistics that compare runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.reports.statistics import (
    bootstrap_band,
    iqm,
    on_grid,
    probability_of_improvement,
    stratified_bootstrap,
)

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


def trimmed(numbers: list[float]) -> float:
    """What is left after taking away one lowest and one highest value for every four there are."""
    left = sorted(numbers)
    for _ in range(len(numbers) // 4):
        left.remove(min(left))
        left.remove(max(left))
    return sum(left) / len(left)


@given(values)
def test_iqm_equals_brute_force(numbers: list[float]) -> None:
    assert iqm(numbers) == pytest.approx(trimmed(numbers), rel=1e-9, abs=1e-6)


def test_iqm_ignores_outliers_which_the_mean_does_not() -> None:
    numbers = [1.0, 2, 3, 4, 5, 6, 7, 1e9]
    assert iqm(numbers) == 4.5
    assert np.mean(numbers) > 1e8


def test_iqm_along_an_axis_equals_each_row_alone() -> None:
    table = np.random.default_rng(0).normal(size=(7, 9))
    np.testing.assert_allclose(iqm(table, axis=0), [trimmed(list(column)) for column in table.T])
    np.testing.assert_allclose(iqm(table, axis=1), [trimmed(list(row)) for row in table])


def test_nothing_has_no_mean() -> None:
    for function in (iqm, lambda none: stratified_bootstrap([none])):
        with pytest.raises(ValueError, match="at least one value"):
            function([])


def test_bootstrap_of_the_mean_is_near_the_normal_interval() -> None:
    numbers = np.random.default_rng(1).normal(size=400)
    low, high = stratified_bootstrap([numbers], np.mean)
    half = 1.96 * numbers.std() / 20
    assert (low, high) == pytest.approx((numbers.mean() - half, numbers.mean() + half), abs=0.01)


def test_bootstrap_is_seeded() -> None:
    numbers = [1.0, 5.0, 2.0, 9.0, 3.0]
    assert stratified_bootstrap([numbers], seed=4) == stratified_bootstrap([numbers], seed=4)
    assert stratified_bootstrap([numbers], seed=4, n=50) != stratified_bootstrap([numbers], seed=5, n=50)


def test_strata_are_resampled_by_themselves() -> None:
    """Two constant tasks have nothing to vary; mixed in one stratum their shares would."""
    assert stratified_bootstrap([[0.0] * 5, [10.0] * 5], np.mean) == (5.0, 5.0)
    low, high = stratified_bootstrap([[0.0] * 5 + [10.0] * 5], np.mean)
    assert low < 5 < high


def test_one_run_has_no_spread() -> None:
    assert stratified_bootstrap([[3.0]]) == (3.0, 3.0)


def test_the_band_of_curves_equals_the_interval_at_each_point() -> None:
    curves = np.random.default_rng(2).normal(size=(6, 3))
    low, high = bootstrap_band([curves], n=300, seed=9)
    single = [stratified_bootstrap([curves[:, i]], n=300, seed=9) for i in range(3)]
    np.testing.assert_allclose(np.stack([low, high], 1), single)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], (1.0, 1.0, 1.0)),
        ([1.0, 2.0], [3.0, 4.0], (0.0, 0.0, 0.0)),
        ([7.0, 7.0], [7.0, 7.0], (0.5, 0.5, 0.5)),
        ([1.0, 3.0], [2.0, 2.0], (0.5, 0.0, 1.0)),  # of x comes 1,1 or 1,3 or 3,1 or 3,3, each a quarter of the time
    ],
)
def test_probability_of_improvement_of_known_answers(
    x: list[float], y: list[float], expected: tuple[float, float, float]
) -> None:
    assert probability_of_improvement([(x, y)]) == expected


def test_probability_of_improvement_counts_pairs_and_is_a_mean_over_tasks() -> None:
    """Mann-Whitney U over the number of pairs, as in Agarwal et al.; 2 of 6 and 5.5 of 6 pairs here."""
    first, second = ([1.0, 4.0], [2.0, 3.0, 9.0]), ([5.0, 6.0, 7.0], [5.0, 1.0])
    assert probability_of_improvement([first])[0] == pytest.approx(2 / 6)
    assert probability_of_improvement([second])[0] == pytest.approx(5.5 / 6)
    assert probability_of_improvement([first, second])[0] == pytest.approx(7.5 / 12)


def test_the_interval_of_the_probability_equals_brute_force() -> None:
    """Every way to draw three of three on both sides, all equally probable."""
    x, y = [3.0, 5.0, 9.0], [2.0, 4.0, 7.0]
    draws = list(itertools.product(range(3), repeat=3))
    means = [
        np.mean([(x[i] > y[j]) + 0.5 * (x[i] == y[j]) for i in first for j in second])
        for first in draws
        for second in draws
    ]
    probability, low, high = probability_of_improvement([(x, y)], n=20_000)
    assert probability == pytest.approx(6 / 9)
    assert (low, high) == pytest.approx(tuple(np.quantile(means, (0.025, 0.975))), abs=0.01)
    assert probability_of_improvement([(x, y)]) == probability_of_improvement([(x, y)])


def test_on_grid_is_straight_between_points_empty_before_and_held_after() -> None:
    grid = np.array([0.0, 10, 15, 20, 30])
    np.testing.assert_allclose(on_grid([10, 20], [1.0, 2.0], grid), [np.nan, 1, 1.5, 2, 2])


def test_on_grid_takes_the_last_of_one_position_and_leaves_out_what_is_no_number() -> None:
    grid = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(on_grid([1, 1, 2, 3], [5.0, 6.0, np.nan, 8.0], grid), [6, 7, 8])
    assert np.isnan(on_grid([1.0], [np.inf], grid)).all()
