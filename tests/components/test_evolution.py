"""CMA-ES: it finds the best, and its state is exact at every moment."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.archive import checkpoint
from ludus.components.evolution import Evolution, bytes_of_generation

GOAL = np.array([1.0, -2.0, 0.5, 0.0, -0.5])
"""An odd number, as of candidates: normal numbers are drawn in pairs, and one of them is left over."""


def made(seed: int = 3) -> Evolution:
    return Evolution(5, sigma=0.5, population=7, seed=seed)


def judged(one: Evolution, generations: int) -> Evolution:
    for _ in range(generations):
        one.tell(-np.square(one.ask() - GOAL).sum(1))
    return one


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


def test_a_higher_score_is_better() -> None:
    found = judged(made(), 60)
    assert found.generation == 60
    np.testing.assert_allclose(found.mean, GOAL, atol=1e-2)


def test_candidates_stay_until_they_are_judged() -> None:
    one = made()
    candidates = one.ask()
    assert candidates.shape == (7, 5) and one.ask() is candidates
    one.tell(np.arange(7.0))
    assert not np.array_equal(one.ask(), candidates)


@pytest.mark.parametrize("asked", [False, True])
def test_its_state_goes_through_a_checkpoint_to_the_bit(asked: bool, tmp_path: Path) -> None:
    one, other = judged(made(), 3), made(seed=99)
    if asked:
        one.ask()
    checkpoint.save(tmp_path, {"algorithm": one.state_dict()}, name="step=1")
    other.load_state_dict(checkpoint.load(checkpoint.find(tmp_path))["algorithm"])
    assert same(one.state_dict(), other.state_dict())
    for _ in range(4):
        assert np.array_equal(one.ask(), other.ask())
        judged(one, 1), judged(other, 1)
    assert same(one.state_dict(), other.state_dict())


@pytest.mark.parametrize("candidates", [4, 40])
def test_what_a_generation_takes_is_known_before(candidates: int) -> None:
    weights = 150
    tracemalloc.start()
    try:
        one = Evolution(weights, sigma=0.5, population=candidates, seed=1)
        one.ask()
        one.tell(np.arange(float(candidates)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bytes_of_generation(weights, candidates) == pytest.approx(peak, rel=0.25)


def test_a_state_is_a_copy() -> None:
    one = judged(made(), 1)
    saved = one.state_dict()
    mean = saved["arrays"]["mean"].copy()
    judged(one, 2)
    assert np.array_equal(saved["arrays"]["mean"], mean)
