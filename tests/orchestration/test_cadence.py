"""Cadences cross their grid instead of hitting it, and warm-up comes first."""

from __future__ import annotations

import pytest

from ludus.config.training import Evaluation
from ludus.orchestration.evaluator import EvaluationDue, Every
from ludus.progress import Budget, Progress


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
    due = EvaluationDue(Evaluation(every_epochs=15, warmup_epochs=50), Budget(1_000))
    assert [e for e in range(1, 100) if due.due(Progress(env_steps=e * 10, epochs=e))] == [60, 75, 90]


def test_warmup_as_a_fraction_of_the_run() -> None:
    due = EvaluationDue(Evaluation(every_steps=100, warmup_epochs=0.5), Budget(1_000))
    steps = range(0, 1_001, 50)
    assert [s for s in steps if due.due(Progress(env_steps=s, epochs=s // 50))] == [600, 700, 800, 900, 1_000]


def test_a_run_without_steps_is_evaluated_by_its_updates() -> None:
    due = EvaluationDue(Evaluation(every_updates=100, warmup_epochs=0.5), Budget(1_000, "updates"))
    assert [u for u in range(0, 1_001, 50) if due.due(Progress(updates=u))] == [600, 700, 800, 900, 1_000]


def test_the_grids_go_on_where_they_were() -> None:
    cfg = Evaluation(every_epochs=2, every_steps=100, every_updates=100)
    due, resumed = (EvaluationDue(cfg, Budget(1_000)) for _ in range(2))
    assert due.due(Progress(env_steps=250, updates=250, epochs=2))
    resumed.load_state_dict(due.state_dict())
    assert not resumed.due(Progress(env_steps=299, updates=299, epochs=3))
    assert resumed.due(Progress(env_steps=299, updates=300, epochs=3))
