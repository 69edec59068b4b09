"""Sequences cut at episode starts: every step once, each slice one place, states handed on within a piece only."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ludus.kernels.segments import Segments

starts = st.tuples(st.integers(1, 12), st.integers(1, 5)).flatmap(lambda shape: arrays(bool, shape))


@given(starts)
def test_a_recurrence_over_pieces_equals_one_over_time(first: np.ndarray) -> None:
    """h = 2 h' + x, zero at episode starts: with whole numbers exactly equal."""
    T, B = first.shape
    x, state = np.arange(1.0, T * B + 1).reshape(T, B, 1), np.full((B, 1), 3.0)
    expected, before, h = np.empty_like(x), np.empty_like(x), state
    for t in range(T):
        before[t] = h * ~first[t][:, None]
        h = expected[t] = 2 * before[t] + x[t]
    segments = Segments(first)
    rows = segments.pack(x)
    start = last = segments.start(state)
    y = np.empty_like(rows)
    for now in segments.slices:
        last = y[now] = 2 * last[: now.stop - now.start] + rows[now]
    assert np.array_equal(segments.unpack(y), expected)
    assert np.array_equal(segments.unpack(segments.before(start, y)), before)
    assert len(segments.slices) == max(int(run) for column in first.T for run in _lengths(column))


@given(starts)
def test_a_state_that_is_not_used_has_no_gradient(first: np.ndarray) -> None:
    segments = Segments(first)
    gradient = segments.start_gradient(np.ones((segments.count, 2)))
    assert np.array_equal(gradient, np.repeat(~first[0][:, None], 2, 1))


def _lengths(column: np.ndarray) -> np.ndarray:
    begin = np.flatnonzero(np.concatenate([[True], column[1:]]))
    return np.diff(begin, append=len(column))
