"""Alerts begin once, end once, are counted, and carry a tip."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ludus.watch.monitor import SHOWN, Monitor
from ludus.watch.rules import Rules

_RULES = Rules(
    {
        "*/kl": {"max": 0.1, "patience": 2, "tip": "slow down"},
        "*/ev": {"min": 0.0, "tip": "bigger critic"},
        "*/best": {"delta": "non_decreasing"},
        "*/entropy": {"collapse": 0.1, "tip": "explore"},
        "*/clip": {"min": 0.1, "max": 0.5, "patience": {"min": 3}, "tip": {"min": "faster", "max": "slower"}},
        "*/ep_rew/mean": {"stall": 5, "fall": 0.5, "better": "up", "tip": {"stall": "explore", "fall": "forgets"}},
    }
)


def _watch(key: str, *values: Any, **options: Any) -> Monitor:
    monitor = Monitor(_RULES, **options)
    for i, value in enumerate(values):
        monitor.write({"epoch": i, "env_steps": 10 * i, "phase": "main", key: value})
    return monitor


def _told(key: str, *values: float) -> list[tuple[bool, str]]:
    monitor, told = Monitor(_RULES), []
    monitor.listeners.append(lambda event: told.append((event.begins, event.text)))
    for i, value in enumerate(values):
        monitor.write({"epoch": i, "env_steps": 10 * i, key: value})
    return told


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


def test_a_beginning_and_an_end_are_told_and_nothing_between() -> None:
    told = _told("train/kl", 0.2, 0.3, 0.3, 0.3, 0.05, 0.3, 0.05, 0.05, 0.05)
    assert told == [(True, "train/kl = 0.300: above 0.1; slow down"), (False, "train/kl: over: above 0.1")]


def test_an_alert_that_keeps_coming_back_is_told_a_few_times_and_counted_always() -> None:
    values = [-1.0, 1.0] * 20
    told = _told("train/ev", *values)
    assert len(told) == 2 * SHOWN
    assert "from now on it is only counted" in told[-2][1]
    monitor = _watch("train/ev", *values)
    assert (monitor.alerts[0].times, monitor.alerts[0].rows) == (20, 20)
    assert monitor.recap() == ["train/ev: below 0 in 20 of 40 rows, 20 times; bigger critic"]


def test_nan_and_infinity_alert_at_once_and_end() -> None:
    for value in (math.nan, math.inf):
        (alert,) = _watch("train/loss/policy", 1.0, value).alerts
        assert (alert.problem, alert.active) == ("not a finite number", True)
        assert "learning rate" in alert.tip
        assert not _watch("train/loss/policy", value, 1.0).alerts[0].active


def test_each_check_has_its_own_patience_and_tip() -> None:
    (high,) = _watch("train/clip", 0.9).alerts
    assert (high.problem, high.tip) == ("above 0.5", "slower")
    assert _watch("train/clip", 0.01, 0.01).alerts == []
    (low,) = _watch("train/clip", 0.01, 0.01, 0.01).alerts
    assert (low.problem, low.tip) == ("below 0.1", "faster")


def test_entropy_collapse_is_relative_to_the_highest() -> None:
    assert _watch("train/entropy", 0.69, 0.2).alerts == []
    (alert,) = _watch("train/entropy", 0.5, 0.69, 0.05).alerts
    assert alert.problem == "under 10% of its highest value"
    assert _watch("train/entropy", -1.0, -5.0).alerts == []  # a density may have negative entropy


def test_a_metric_that_must_not_fall() -> None:
    assert _watch("train/best", 1.0, 1.0, 2.0).alerts == []
    (alert,) = _watch("train/best", 2.0, 1.0).alerts
    assert "fell" in alert.problem


def test_a_return_that_stands_still() -> None:
    key = "train/roll/ep_rew/mean"
    assert _watch(key, *range(40)).alerts == []
    assert _watch(key, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0).alerts == []
    (alert,) = _watch(key, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0).alerts
    assert (alert.problem, alert.tip) == ("no new best in 5 rows", "explore")
    assert _watch(key, *[1.0, 2.0, *[3.0] * 9], threshold=3.0).alerts == []  # solved: nothing left to gain
    long = [*range(60), *[59.0] * 20]  # the wait grows with the run: 20 rows are nothing after 60 good ones
    assert _watch(key, *long).alerts == []
    assert _watch(key, *long, *[59.0] * 20).alerts != []


def test_a_return_that_falls() -> None:
    key = "train/roll/ep_rew/mean"
    rising = [20.0 + 5 * i for i in range(50)]
    (alert,) = [alert for alert in _watch(key, *rising, 100.0).alerts if alert.problem.startswith("lost")]
    assert (alert.problem, alert.tip) == ("lost over 50% of what it had gained", "forgets")
    noisy = [20.0 + 3 * (i % 2) for i in range(30)]  # it gained 3 and loses 3 all the time: that is noise
    assert not [alert for alert in _watch(key, *noisy).alerts if alert.problem.startswith("lost")]


def test_a_better_that_is_down() -> None:
    rules = Rules({"*/cost": {"stall": 3, "better": "down"}})
    falling, rising = Monitor(rules), Monitor(rules)
    for i in range(9):
        falling.write({"env_steps": i, "train/cost": 10.0 - i})
        rising.write({"env_steps": i, "train/cost": 10.0 + i})
    assert falling.alerts == []
    assert rising.alerts[0].problem.startswith("no new best")


def test_text_and_columns_are_not_metrics() -> None:
    monitor = Monitor(Rules({"*": {"max": 0}}))
    monitor.write({"epoch": 5, "env_steps": 100, "phase": "main", "seconds": 3.0})
    assert monitor.alerts == []


def test_recap_puts_the_most_frequent_first() -> None:
    monitor = Monitor(_RULES)
    for i in range(4):
        monitor.write({"env_steps": i, "train/ev": -1.0, "val/ev": -1.0 if i == 0 else 1.0})
    assert [line.split(":")[0] for line in monitor.recap()] == ["train/ev", "val/ev"]


def test_a_resumed_run_knows_its_past_and_tells_nothing_twice() -> None:
    rows = [{"epoch": i, "env_steps": i, "train/kl": 0.5, "train/entropy": 1.0} for i in range(3)]
    monitor, told = Monitor(_RULES), []
    monitor.listeners.append(told.append)
    monitor.replay(rows)
    assert told == []
    monitor.write({"epoch": 3, "env_steps": 3, "train/kl": 0.5, "train/entropy": 0.05})
    assert [event.alert.key for event in told] == ["train/entropy"]  # against the 1.0 of before
    assert monitor.recap()[0].startswith("train/kl: above 0.1 in 4 of 4 rows")


def test_an_alert_of_one_moment_is_told_once_and_does_not_last() -> None:
    monitor, told = Monitor(_RULES), []
    monitor.listeners.append(lambda event: told.append((event.begins, event.text)))
    monitor.once("train/policy/std", "first", "too narrow", "widen it", value=0.1, env_steps=7)
    monitor.write({"epoch": 1, "env_steps": 8, "train/policy/std": 0.1})
    assert told == [(True, "train/policy/std = 0.100: too narrow; widen it")]
    (alert,) = monitor.alerts
    assert (alert.active, alert.rows, alert.env_steps) == (False, 1, 7)


def test_an_extreme_value_alerts_at_once_and_ends_with_patience() -> None:
    rules = Rules({"*/kl": {"min": -1, "max": 0.1, "extreme": {"max": 1.0, "min": -5}, "patience": 3}})
    for values, times in (
        ([1.0, 0.0], 0),  # not beyond it
        ([1.1, 0.0], 1),
        ([-5.0, 0.0], 0),
        ([-5.1, 0.0], 1),
        ([1.1, 0.0, 1.1, 0.0, 0.0, 0.0, 1.1], 2),
    ):
        monitor = Monitor(rules)
        for i, value in enumerate(values):
            monitor.write({"epoch": i, "env_steps": i, "train/kl": value})
        assert [alert.times for alert in monitor.alerts] == ([times] if times else []), values


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("train/loss/total", [math.nan]),
        ("train/policy/entropy", [0.69] + [0.001] * 10),
        ("train/policy/kl", [0.5] * 3),
        ("train/policy/kl", [151.0]),
        ("train/policy/approx_kl", [0.5] * 3),
        ("train/policy/clip_fraction", [0.9] * 5),
        ("train/policy/clip_fraction", [0.95]),
        ("train/policy/clip_fraction", [0.0] * 100),
        ("train/policy/value_clip_fraction", [0.9] * 5),
        ("train/explained_variance", [-0.5] * 25),
        ("train/roll/ep_rew/mean", [1.0] * 101),
        ("val/roll/ep_rew/mean", [1.0] * 21),
        ("train/roll/ep_rew/mean", [*range(100), *[10.0] * 10]),
        ("val/roll/ep_rew/mean", [*range(100), *[10.0] * 3]),
        ("train/system/memory_share", [0.95] * 3),
        ("train/system/memory_ahead", [1.5] * 30),
        ("train/time/fps", [1000.0, *[100.0] * 20]),
        ("train/alerts/nan", [1.0]),
    ],
)
def test_shipped_rules_notice_and_advise(tmp_path: Path, key: str, values: list[float]) -> None:
    monitor = Monitor(Rules.load(tmp_path / "none.yaml"))
    for i, value in enumerate(values[:-1]):
        monitor.write({"epoch": i + 2, "env_steps": i, key: value})
    assert monitor.alerts == []  # one row less is not enough
    monitor.write({"epoch": len(values) + 1, "env_steps": len(values), key: values[-1]})
    (alert,) = monitor.alerts
    assert len(alert.tip) > 20
