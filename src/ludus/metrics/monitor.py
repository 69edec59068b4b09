"""Watches the rows for numbers that mean trouble, and says what to do about each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ludus.metrics.names import COLUMNS
from ludus.metrics.rules import Rule, Rules
from ludus.metrics.sinks import Row, Sink
from ludus.metrics.text import clean, number

_NAN_TIP = "lower the learning rate, clip gradients, look for NaN in observations or rewards"
_KINDS = ("min", "max", "delta", "collapse")
_UNSEEN = object()


@dataclass
class Alert:
    """One kind of trouble with one metric."""

    key: str
    problem: str
    tip: str
    env_steps: int
    """When it first started."""
    value: float
    """What it was then."""
    rows: int = 0
    """Rows it held in."""

    def line(self) -> str:
        """For the console, when it starts."""
        head = f"{clean(self.key)} = {number(self.value)}: {self.problem}"
        return f"{head}; {self.tip}" if self.tip else head


@dataclass
class _Watch:
    streak: int = 0
    rows: int = 0
    alert: Alert | None = None


class Monitor(Sink):
    """`alerts` grows by one when a kind of trouble first starts; later rows of that kind are only counted."""

    def __init__(self, rules: Rules) -> None:
        self.alerts: list[Alert] = []
        self.rows = 0
        self._rules = rules
        self._checked: dict[str, Rule | None] = {}
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._watches: dict[tuple[str, str], _Watch] = {}

    def write(self, row: Row) -> None:
        """Check every metric of a row."""
        self.rows += 1
        for key, value in row.items():
            rule = self._checked.get(key, _UNSEEN)
            if rule is _UNSEEN:
                rule = self._meet(key, value)
            if isinstance(value, str):
                continue
            if not math.isfinite(value):
                self._bad(row, key, "nan", "not a finite number", _NAN_TIP, 1)
            elif isinstance(rule, Rule):
                self._check(row, key, value, rule)

    def recap(self) -> list[str]:
        """Every alert with how often it held, most frequent first."""
        ordered = sorted(self.alerts, key=lambda alert: -alert.rows)
        return [f"{clean(a.key)}: {a.problem} in {a.rows:,} of {self.rows:,} rows; {a.tip}" for a in ordered]

    def _meet(self, key: str, value: float | str) -> Rule | None:
        """First sight of a metric: keep its rule if there is something to check."""
        rule = self._rules[key]
        checks = (rule.min, rule.max, rule.delta, rule.collapse)
        known = key in COLUMNS or isinstance(value, str) or checks == (None,) * 4
        self._checked[key] = None if known else rule
        if not isinstance(value, str):
            self._first[key] = self._last[key] = value
        return self._checked[key]

    def _check(self, row: Row, key: str, value: float, rule: Rule) -> None:
        found = _troubles(rule, value, self._last[key], self._first[key])
        self._last[key] = value
        for kind, problem in found.items():
            self._bad(row, key, kind, problem, rule.tip, rule.patience)
        for kind in _KINDS:
            if kind not in found and (key, kind) in self._watches:
                self._watches[key, kind].streak = 0

    def _bad(self, row: Row, key: str, kind: str, problem: str, tip: str, patience: int) -> None:
        watch = self._watches.setdefault((key, kind), _Watch())
        watch.streak += 1
        watch.rows += 1
        if watch.alert is None and watch.streak >= patience:
            watch.alert = Alert(key, problem, tip, int(row.get("env_steps", 0)), float(row[key]))
            self.alerts.append(watch.alert)
        if watch.alert is not None:
            watch.alert.rows = watch.rows


def _troubles(rule: Rule, value: float, previous: float, first: float) -> dict[str, str]:
    found = {}
    if rule.min is not None and value < rule.min:
        found["min"] = f"below {rule.min:g}"
    if rule.max is not None and value > rule.max:
        found["max"] = f"above {rule.max:g}"
    if rule.delta == "non_decreasing" and value < previous:
        found["delta"] = "fell, which it never should"
    if rule.delta == "non_increasing" and value > previous:
        found["delta"] = "rose, which it never should"
    if rule.collapse is not None and first > 0 and value < rule.collapse * first:
        found["collapse"] = f"under {rule.collapse:.0%} of its first value"
    return found
