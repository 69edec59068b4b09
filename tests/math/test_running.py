"""Running moments against numpy on the concatenated data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.math.running import RunningMoments


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_any_cut_into_batches_gives_the_same_moments(sizes, seed):
    rng = np.random.default_rng(seed)
    batches = [rng.normal(1e3, 3, (size, 2, 3)).astype(np.float32) for size in (*sizes, 1)]
    moments = RunningMoments((2, 3))
    for batch in batches:
        moments.update(batch)
    everything = np.concatenate(batches).astype(np.float64)
    assert moments.count == len(everything)
    np.testing.assert_allclose(moments.mean, everything.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.var, everything.var(0), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(moments.std, everything.std(0), rtol=1e-6, atol=1e-6)


def test_a_far_offset_loses_no_variance():
    moments = RunningMoments()
    for x in np.random.default_rng(0).standard_normal((50, 20)):
        moments.update(1e8 + x)
    assert moments.var == pytest.approx(1.0, rel=0.1)


def test_before_the_first_sample_nothing_is_scaled():
    assert RunningMoments((2,)).std.tolist() == [1, 1]


def test_a_saved_state_goes_on_to_the_bit():
    a, b = RunningMoments((3,)), RunningMoments((3,))
    batches = np.random.default_rng(0).standard_normal((4, 5, 3))
    for batch in batches[:2]:
        a.update(batch)
    state = a.state_dict()
    b.load_state_dict(state)
    for batch in batches[2:]:
        a.update(batch)
        b.update(batch)
    assert a.count == b.count and (a.mean == b.mean).all() and (a.var == b.var).all()
    assert int(state["count"]) == 10


def test_another_shape_is_refused():
    with pytest.raises(ValueError, match="shape"):
        RunningMoments((3,)).load_state_dict(RunningMoments((2,)).state_dict())
    with pytest.raises(AssertionError):
        RunningMoments((3,)).update(np.zeros((4, 2)))
