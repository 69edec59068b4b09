"""Alerts start once, are counted, and carry a tip."""

from __future__ import annotations

import math
from typing import Any

from ludus.metrics.monitor import Monitor
from ludus.metrics.rules import Rules

_RULES = Rules(
    {
        "*/kl": {"max": 0.1, "patience": 2, "tip": "slow down"},
        "*/ev": {"min": 0.0, "tip": "bigger critic"},
        "*/best": {"delta": "non_decreasing"},
        "*/entropy": {"collapse": 0.1, "tip": "explore"},
    }
)


def _watch(key: str, *values: Any) -> Monitor:
    monitor = Monitor(_RULES)
    for i, value in enumerate(values):
        monitor.write({"epoch": i, "env_steps": 10 * i, "phase": "main", key: value})
    return monitor


def test_nothing_to_say_about_good_rows() -> None:
    assert _watch("train/kl", 0.01, 0.05, 0.1).alerts == []
    assert _watch("train/unknown", -1e9, 1e9).alerts == []


def test_bounds_need_patience_and_alert_once() -> None:
    assert _watch("train/kl", 0.2, 0.05, 0.2, 0.05).alerts == []
    monitor = _watch("train/kl", 0.2, 0.3, 0.05, 0.4, 0.4, 0.4)
    (alert,) = monitor.alerts
    assert (alert.key, alert.problem, alert.env_steps, alert.value, alert.rows) == ("train/kl", "above 0.1", 10, 0.3, 5)
    assert alert.line() == "train/kl = 0.300: above 0.1; slow down"
    assert monitor.recap() == ["train/kl: above 0.1 in 5 of 6 rows; slow down"]


def test_nan_and_infinity_alert_at_once() -> None:
    for value in (math.nan, math.inf):
        (alert,) = _watch("train/loss/policy", 1.0, value).alerts
        assert alert.problem == "not a finite number"
        assert "learning rate" in alert.tip


def test_negative_explained_variance() -> None:
    (alert,) = _watch("train/ev", 0.5, -0.2).alerts
    assert (alert.problem, alert.tip) == ("below 0", "bigger critic")


def test_entropy_collapse_is_relative_to_the_highest() -> None:
    assert _watch("train/entropy", 0.69, 0.2).alerts == []
    (alert,) = _watch("train/entropy", 0.69, 0.05).alerts
    assert alert.problem == "under 10% of its highest value"
    assert _watch("train/entropy", -1.0, -5.0).alerts == []  # a density may have negative entropy


def test_a_metric_that_must_not_fall() -> None:
    assert _watch("train/best", 1.0, 1.0, 2.0).alerts == []
    (alert,) = _watch("train/best", 2.0, 1.0).alerts
    assert "fell" in alert.problem


def test_text_and_columns_are_not_metrics() -> None:
    monitor = Monitor(Rules({"*": {"max": 0}}))
    monitor.write({"epoch": 5, "env_steps": 100, "phase": "main", "seconds": 3.0})
    assert monitor.alerts == []


def test_recap_puts_the_most_frequent_first() -> None:
    monitor = Monitor(_RULES)
    for i in range(4):
        monitor.write({"env_steps": i, "train/ev": -1.0, "val/ev": -1.0 if i == 0 else 1.0})
    assert [line.split(":")[0] for line in monitor.recap()] == ["train/ev", "val/ev"]
