"""Cadences cross their grid instead of hitting it, and warm-up comes first."""

from __future__ import annotations

import pytest

from ludus.orchestration.cadence import EvaluationDue, Every


@pytest.mark.parametrize(
    ("interval", "stride", "expected"), [(10, 3, [12, 21, 30]), (10, 10, [10, 20, 30]), (4, 9, [9, 18, 27])]
)
def test_every_crosses(interval: int, stride: int, expected: list[int]) -> None:
    every = Every(interval)
    assert [n for n in range(stride, 31, stride) if every.due(n)] == expected


@pytest.mark.parametrize("interval", [None, 0])
def test_never(interval: int | None) -> None:
    every = Every(interval)
    assert not any(every.due(n) for n in range(100))


def test_warmup_50_every_15_starts_at_60() -> None:
    due = EvaluationDue(15, None, 50)
    assert [e for e in range(1, 100) if due.due(e, e * 10, 1_000)] == [60, 75, 90]


def test_warmup_as_a_fraction_of_the_run() -> None:
    due = EvaluationDue(None, 100, 0.5)
    assert [s for s in range(0, 1_001, 50) if due.due(s // 50, s, 1_000)] == [600, 700, 800, 900, 1_000]
