"""The last screen of a run: what the curves did, solved or not, why it ended and what to try next."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ludus.console.history import History
from ludus.console.screen import BAD, DIM, GOOD, SPARK, TITLE, WARN, Line, box
from ludus.text import clean, duration, near, number, points, rate, sparkline
from ludus.watch.rules import Rules

_NEXT = (("ludus play @last", "watch it play"), ("ludus play @last --video auto", "record it"))


def summary(result: Mapping[str, Any], history: History, rules: Rules, alerts: Sequence[str], width: int) -> list[Line]:
    """All of it; `result` is described at Console.summary."""
    return [
        *_curves(history, rules, width),
        [],
        *_verdict(result, width),
        *_facts(result, alerts, width),
    ]


def _curves(history: History, rules: Rules, width: int) -> list[Line]:
    keys = sorted((key for key in history.series if rules[key].highlight), key=rules.rank)
    if not keys:
        return []
    names = max(len(clean(key, 40)) for key in keys)
    spark = max(min(width - names - 5 * 9 - 2, 40), 8)
    columns = "".join(title.rjust(9) for title in ("last", "min", "max", "mean", "std"))
    lines: list[Line] = [[("history".ljust(names + 2 + spark), TITLE), (columns, DIM)]]
    for key in keys:
        series, precision = history.series[key], rules[key].precision
        drawn = sparkline(series.curve(), spark)
        last, *rest = (number(v, precision) for v in (series.last, series.min, series.max, series.mean, series.std))
        style = GOOD if rules[key].bold else SPARK
        lines.append(
            [
                (clean(key, 40).ljust(names + 2), ""),
                (drawn.ljust(spark), style),
                (last.rjust(9), "bold"),
                ("".join(text.rjust(9) for text in rest), ""),
            ]
        )
    return lines


def _verdict(result: Mapping[str, Any], width: int) -> list[Line]:
    threshold, mean, std = result.get("threshold"), result.get("mean"), result.get("std")
    size = min(width, 72)
    if mean is None:
        return box("FINISHED", [[("no evaluation was made", "")]], size, DIM)
    score = f"evaluated mean return {points(mean)}" + (f" ± {points(std)}" if std is not None else "")
    if threshold is None:
        return box("FINISHED", [[(score, "bold"), ("  no threshold is set", DIM)]], size, SPARK)
    gap = f"{'+' if mean >= threshold else ''}{points(mean - threshold)}"
    body: list[Line] = [[(score, "bold"), (f"   threshold {points(threshold)}   gap {gap}", "")]]
    return box("SOLVED", body, size, GOOD) if mean >= threshold else box("NOT SOLVED", body, size, BAD)


def _facts(result: Mapping[str, Any], alerts: Sequence[str], width: int) -> list[Line]:
    seconds, steps = float(result.get("seconds", 0.0)), int(result.get("env_steps", 0))
    updates = int(result.get("updates", 0))
    done, noun = (steps, "steps") if steps or not updates else (updates, "updates")
    speed = rate(done / seconds) if seconds > 0 else "-"
    counts = f"{steps:,} steps, {int(result.get('epochs', 0)):,} epochs, {updates:,} updates"
    facts = [
        ("stopped", str(result.get("reason") or "the budget is used up"), ""),
        ("took", f"{duration(seconds)} for {counts}, {speed} {noun}/s", ""),
        *(("alert", text, WARN) for text in alerts),
        *([("folder", near(Path(str(result["folder"]))), "")] if result.get("folder") else []),
    ]
    lines: list[Line] = []
    for label, text, style in facts:
        parts = textwrap.wrap(clean(text, 400), width - 9) or [""]
        lines += [[((label if i == 0 else "").ljust(9), DIM), (part, style)] for i, part in enumerate(parts)]
    commands = result.get("next", _NEXT)
    size = max((len(command) for command, _ in commands), default=0) + 3
    for i, (command, what) in enumerate(commands):
        lines.append([(("" if i else "next").ljust(9), DIM), (clean(command).ljust(size), "bold"), (clean(what), DIM)])
    return lines
