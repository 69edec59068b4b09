"""Histories are bounded and still tell the whole run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.console.history import History, Series


def test_a_long_series_stays_small_and_keeps_its_shape() -> None:
    series = Series()
    for i in range(100_000):
        series.add(float(i))
    curve = series.curve()
    assert len(curve) <= 80
    assert curve == sorted(curve)
    assert curve[0] < 3_000
    assert curve[-1] > 95_000
    assert (series.min, series.max, series.last) == (0.0, 99_999.0, 99_999.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300))
def test_moments_are_exact(values: list[float]) -> None:
    series = Series()
    for value in values:
        series.add(value)
    assert series.mean == pytest.approx(np.mean(values), abs=1e-6)
    assert series.std == pytest.approx(np.std(values), rel=1e-6, abs=1e-5)


def test_nan_is_last_but_not_in_the_moments() -> None:
    series = Series()
    for value in (1.0, math.nan):
        series.add(value)
    assert math.isnan(series.last)
    assert (series.min, series.max, series.mean, series.count) == (1.0, 1.0, 1.0, 1)


def test_previous_is_the_value_before_the_newest_rows() -> None:
    history = History()
    history.extend([{"epoch": 1, "a/b": 1.0}, {"epoch": 2, "a/b": 2.0}])
    history.extend([{"epoch": 3, "a/b": 3.0}, {"epoch": 4, "a/b": 4.0, "phase": "x"}])
    assert (history.series["a/b"].previous, history.series["a/b"].last) == (2.0, 4.0)
    assert history.position == {"epoch": 4, "phase": "x"}
    history.extend([{"epoch": 5}])
    assert history.series["a/b"].previous == 2.0
