"""The lines of a run for pipes and run.log, where there is no table."""

from __future__ import annotations

from fnmatch import fnmatchcase

from ludus.console.history import History
from ludus.console.screen import Standing
from ludus.metrics.names import EVAL_RETURN, RETURN
from ludus.metrics.sinks import Row
from ludus.text import clean, duration, number, points, rate
from ludus.watch.rules import Rules

_LEARNING = ("train/loss/*", "train/*/entropy", "train/*explained_var*")
"""The metrics that tell whether an update did any good."""


def progress(p: Standing, history: History, rules: Rules) -> str:
    """How far the run is, its return, and its losses: in the order of the table."""
    share = p.position / p.total if p.total else 1.0
    reward = history.series.get(RETURN)
    told = [f"return {points(reward.last)}"] if reward else []
    for key in sorted(history.series, key=rules.rank):
        if any(fnmatchcase(key, pattern) for pattern in _LEARNING):
            value = number(history.series[key].last, rules[key].precision)
            told.append(f"{clean(key.removeprefix('train/'), 40)} {value}")
    counts = f"{share:4.0%}  {p.position:,} / {p.total:,} {p.noun}  epoch {p.epoch:,}  update {p.updates:,}"
    return "  ".join([f"{_clock(p)} {counts}", f"{rate(p.speed)} {p.noun}/s", p.left, *told])


def waiting(p: Standing, doing: str) -> str:
    """How far the run is between two rows, and what it does."""
    counts = f"{_clock(p)} {p.position:,} / {p.total:,} {p.noun}"
    return "  ".join([counts, f"{rate(p.speed)} {p.noun}/s", p.left, doing]).rstrip()


def evaluation(p: Standing, row: Row, threshold: float | None) -> str:
    """The result of an evaluation."""
    mean, std = float(row[EVAL_RETURN]), row.get("val/roll/ep_rew/std")
    spread = f" ± {points(float(std))}" if std is not None else ""
    if (count := row.get("val/roll/episodes")) is not None:
        spread += f" over {float(count):.0f} episodes"
    goal = f"  threshold {points(threshold)}" if threshold is not None else ""
    return f"{_clock(p)} evaluation at {p.position:,} {p.noun}: return {points(mean)}{spread}{goal}"


def _clock(p: Standing) -> str:
    return f"[{duration(p.seconds):>7}]"
