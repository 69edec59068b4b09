"""Checks the rows for suspicious numbers and raises alerts with advice.

An alert begins when a check fails in `patience` consecutive rows and ends when it passes in as many. Listeners (the
console, the alert command) get both events; from the third time on an alert is only counted.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ludus.metrics.names import COLUMNS, EVAL_RETURN, RETURN
from ludus.metrics.sinks import Row, Sink
from ludus.text import clean, number
from ludus.watch.rules import Kind, Rule, Rules

SHOWN = 3
"""Listeners get this number of beginnings of one alert; later ones are only counted."""
NOISES = 6.0
"""A fall must exceed this multiple of the usual change between rows."""
_NAN_TIP = "lower the learning rate, clip gradients, look for extreme observations or rewards; --debug names the tensor"
_IDLE_TIP = (
    "lower algorithm.learning_starts or raise training.total_timesteps; "
    "algorithms that learn from whole episodes need episodes that end: environment.max_episode_steps"
)
_UNSEEN = object()


@dataclass
class Alert:
    """One problem of one metric."""

    key: str
    problem: str
    tip: str
    env_steps: int
    """Position of the run when it first began."""
    value: float
    """Value of the metric when it last began."""
    rows: int = 0
    """Number of rows with this problem."""
    times: int = 0
    """Number of times it began."""
    active: bool = False

    def line(self) -> str:
        """The message when it begins."""
        head = f"{clean(self.key)} = {number(self.value)}: {self.problem}"
        return f"{head}; {self.tip}" if self.tip else head


class Event(NamedTuple):
    """An alert begins or ends."""

    alert: Alert
    begins: bool
    text: str


Listener = Callable[[Event], None]


@dataclass
class _Watch:
    alert: Alert
    bad: int = 0
    good: int = 0


class Monitor(Sink):
    """Raises alerts; `alerts` lists all of them in the order in which they first began."""

    def __init__(self, rules: Rules, *, threshold: float | None = None) -> None:
        self.alerts: list[Alert] = []
        self.listeners: list[Listener] = []
        self.threshold = threshold
        self.rows = 0
        self.rules = rules
        self._rule_of: dict[str, Rule | None] = {}
        self._tracks: dict[str, _Track] = {}
        self._watches: dict[tuple[str, str], _Watch] = {}
        self._lock = threading.Lock()  # Stalled raises alerts from a thread

    def write(self, row: Row) -> None:
        """Check every metric of a row."""
        self.rows += 1
        for key, value in row.items():
            rule = self._rule_of.get(key, _UNSEEN)
            if rule is _UNSEEN:
                rule = self._meet(key, value)
            if isinstance(value, str):
                continue
            if not math.isfinite(value):
                self.bad(key, "nan", "not a finite number", _NAN_TIP, value=value, env_steps=_at(row))
                continue
            if (key, "nan") in self._watches:
                self.good(key, "nan")
            if isinstance(rule, Rule):
                self._check(row, key, value, rule)

    def replay(self, rows: Iterable[Row]) -> None:
        """Read the earlier rows of a resumed run: alerts are counted, listeners get no event."""
        listeners, self.listeners = self.listeners, []
        for row in rows:
            self.write(row)
        self.listeners = listeners

    def recap(self) -> list[str]:
        """One line per alert with its frequency, the most frequent first."""
        lines = []
        for alert in sorted(self.alerts, key=lambda alert: -alert.rows):
            often = f"{alert.times} times"
            if alert.rows <= self.rows:
                often = f"in {alert.rows:,} of {self.rows:,} rows" + (f", {often}" if alert.times > 1 else "")
            lines.append(f"{clean(alert.key)}: {alert.problem} {often}" + (f"; {alert.tip}" if alert.tip else ""))
        return lines

    def bad(
        self, key: str, kind: str, problem: str, tip: str, *, value: float, env_steps: int, patience: int = 1
    ) -> None:
        """A check failed."""
        with self._lock:
            watch = self._watches.get((key, kind))
            if watch is None:
                watch = self._watches[key, kind] = _Watch(Alert(key, problem, tip, env_steps, value))
            alert = watch.alert
            watch.bad, watch.good = watch.bad + 1, 0
            alert.rows += 1
            if alert.active or watch.bad < patience:
                return
            alert.active, alert.problem, alert.value = True, problem, value
            alert.times += 1
            if alert.times == 1:
                alert.env_steps = env_steps
                self.alerts.append(alert)
        self._tell(alert, True, alert.line())

    def good(self, key: str, kind: str, patience: int = 1) -> None:
        """A check passed."""
        with self._lock:
            watch = self._watches.get((key, kind))
            if watch is None:
                return
            alert = watch.alert
            watch.bad, watch.good = 0, watch.good + 1
            if not alert.active or watch.good < patience:
                return
            alert.active = False
        self._tell(alert, False, f"{clean(alert.key)}: over: {alert.problem}")

    def once(self, key: str, kind: str, problem: str, tip: str, *, value: float, env_steps: int) -> None:
        """A check of one moment failed; the alert does not last."""
        self.bad(key, kind, problem, tip, value=value, env_steps=env_steps)
        self._watches[key, kind].alert.active = False

    def idle(self) -> None:
        """The run made no update; its rows alone do not show it, so that every row counts."""
        self.bad("updates", "idle", "nothing was learned", _IDLE_TIP, value=0.0, env_steps=0)
        self._watches["updates", "idle"].alert.rows = max(self.rows, 1)

    def _tell(self, alert: Alert, begins: bool, text: str) -> None:
        if alert.times > SHOWN:
            return
        if begins and alert.times == SHOWN:
            text += " (again; from now on it is only counted)"
        for listener in self.listeners:
            listener(Event(alert, begins, text))

    def _meet(self, key: str, value: float | str) -> Rule | None:
        """Look up the rule of a new metric; None if there is nothing to check."""
        rule = self.rules[key]
        known = key in COLUMNS or isinstance(value, str) or not rule.checked
        self._rule_of[key] = None if known else rule
        return self._rule_of[key]

    def _check(self, row: Row, key: str, value: float, rule: Rule) -> None:
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = _Track(value, rule.better == "down")
        solved = self.threshold is not None and key in (RETURN, EVAL_RETURN) and value >= self.threshold
        for kind, problem in _checks(rule, value, track, solved):
            patience, tip = rule.of(kind)
            if problem is None:
                self.good(key, kind, patience)
            else:
                wait = 1 if rule.is_extreme(kind, value) else patience
                self.bad(key, kind, problem, tip, value=value, env_steps=_at(row), patience=wait)
        track.add(value)


class _Track:
    """The history of a checked metric, as far as the checks need it."""

    __slots__ = ("best", "best_row", "down", "first", "last", "noise", "row", "top")

    def __init__(self, value: float, down: bool) -> None:
        self.first = self.last = self.best = self.top = value
        self.down, self.noise = down, 0.0
        self.row, self.best_row = 0, 1

    def add(self, value: float) -> None:
        """Add a value."""
        self.row += 1
        if self.is_best(value):
            self.best, self.best_row = value, self.row
        self.top = max(self.top, value)
        if self.row > 1:
            self.noise += max(0.1, 1 / (self.row - 1)) * (abs(value - self.last) - self.noise)
        self.last = value

    def is_best(self, value: float) -> bool:
        """Whether a value is better than all before."""
        return value < self.best if self.down else value > self.best


def _checks(rule: Rule, value: float, track: _Track, solved: bool) -> Iterator[tuple[Kind, str | None]]:
    """Every check of a rule, with the problem if it fails."""
    if rule.min is not None:
        yield "min", f"below {rule.min:g}" if value < rule.min else None
    if rule.max is not None:
        yield "max", f"above {rule.max:g}" if value > rule.max else None
    if rule.delta == "non_decreasing":
        yield "delta", "fell, which it never should" if value < track.last else None
    if rule.delta == "non_increasing":
        yield "delta", "rose, which it never should" if value > track.last else None
    if rule.collapse is not None and track.top > 0:
        low = value < rule.collapse * track.top
        yield "collapse", f"under {rule.collapse:.0%} of its highest value" if low else None
    if rule.stall is not None:
        since = track.row + 1 - track.best_row
        long = since >= max(rule.stall, (track.row + 1) // 3) and not track.is_best(value) and not solved
        yield "stall", f"no new best in {since:,} rows" if long else None
    if rule.fall is not None:
        lost, gained = abs(track.best - value), abs(track.best - track.first)
        deep = not track.is_best(value) and gained > 0 and lost > max(rule.fall * gained, NOISES * track.noise)
        yield "fall", f"lost over {min(rule.fall, 1):.0%} of what it had gained" if deep and not solved else None


def _at(row: Row) -> int:
    return int(row.get("env_steps") or row.get("updates", 0))
