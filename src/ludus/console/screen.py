"""The content of the console as plain data: a line is a list of (text, style), which the Console prints.

Widths are computed here because rich's own tables are too slow: a redraw may take about a millisecond.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from ludus.console.history import History, Series
from ludus.text import clean, duration, near, number, points, rate, sparkline
from ludus.watch.rules import Rules

Line = list[tuple[str, str]]
TITLE, DIM, SPARK = "bold cyan", "bright_black", "cyan"
GOOD, BAD, WARN = "green", "red", "yellow"
_TWO_COLUMNS = 76
_NEXT = (("ludus play @last", "watch it play"), ("ludus play @last --video auto", "record it"))


class TableRow(NamedTuple):
    """One metric of the table."""

    key: str
    group: str
    name: str
    value: str
    value_style: str
    arrow: str
    arrow_style: str
    curve: Sequence[float]
    spark_style: str


class Standing(NamedTuple):
    """How far the run is, counted like its budget."""

    position: int
    total: int
    noun: str
    speed: float
    seconds: float
    epoch: int
    phase: str

    @property
    def eta(self) -> float:
        """Seconds that are left at the present speed."""
        return max(self.total - self.position, 0) / self.speed if self.speed > 0 else math.inf


def rows(history: History, rules: Rules) -> list[TableRow]:
    """The metrics to display, the most important first."""
    keys = [key for key in history.series if rules[key].show_in_table]
    return [_item(key, history.series[key], rules) for key in sorted(keys, key=rules.rank)]


def _item(key: str, series: Series, rules: Rules) -> TableRow:
    rule, group = rules[key], rules.group(key)
    outside = not math.isfinite(series.last) or rule.outside(series.last)
    style = "bold " * rule.bold + (WARN if outside else "")
    rose, fell = series.last > series.previous, series.last < series.previous
    arrow = "▲" if rose else "▼" if fell else " "
    arrow_style = DIM if rule.better is None else GOOD if rose == (rule.better == "up") else BAD
    name = key.removeprefix(group).removeprefix("/") if key.startswith(f"{group}/") else key.partition("/")[2]
    value = ("!" if outside else "") + number(series.last, rule.precision, trim=rule.trim)
    curve = series.curve() if rule.sparkline and series.min < series.max else ()
    spark_style = f"bold {GOOD}" if rule.highlight else SPARK
    name = clean(name.removeprefix("roll/").removeprefix("time/"), 40)
    return TableRow(key, group, name, value, style.strip(), arrow, arrow_style, curve, spark_style)


def table(metrics: Sequence[TableRow], rules: Rules, width: int, height: int) -> list[Line]:
    """The metrics by group in one or two columns; without room for all, the least important are left out."""
    shown = list(metrics)
    columns = _columns(shown, rules, width)
    while len(shown) > 1 and max(map(len, columns)) > height:
        shown.pop()
        columns = _columns(shown, rules, width)
    gap = 3 if width >= 96 else 1
    each = (width - gap * (len(columns) - 1)) // len(columns)
    drawn = [_column(column, each) for column in columns]
    lines: list[Line] = []
    for i in range(max(map(len, drawn), default=0)):
        line: Line = []
        for j, column in enumerate(drawn):
            part = column[i] if i < len(column) else [(" " * each, "")]
            line += ([(" " * gap, "")] if j else []) + part
        lines.append(line)
    return lines


def _columns(metrics: Sequence[TableRow], rules: Rules, width: int) -> list[list[str | TableRow]]:
    """Group titles and metrics in reading order, split into columns of about equal length."""
    groups: dict[str, list[TableRow]] = {}
    for row in metrics:
        groups.setdefault(row.group, []).append(row)
    names = sorted(groups, key=rules.group_rank)
    blocks: list[list[str | TableRow]] = [[name, *groups[name]] for name in names]
    if width < _TWO_COLUMNS or len(blocks) < 2:
        return [[cell for block in blocks for cell in block]]
    sizes = [len(block) for block in blocks]
    split = min(range(1, len(blocks)), key=lambda i: max(sum(sizes[:i]), sum(sizes[i:])))
    return [[c for b in blocks[:split] for c in b], [c for b in blocks[split:] for c in b]]


def _column(cells: Sequence[str | TableRow], width: int) -> list[Line]:
    rows = [cell for cell in cells if isinstance(cell, TableRow)]
    names = min(max((cell_len(row.name) for row in rows), default=0), 22)
    values = max(8, max((len(row.value) for row in rows), default=0))
    spark = max(min(width - names - values - 6, 32), 0)
    lines: list[Line] = []
    for cell in cells:
        if isinstance(cell, str):
            title = clean(cell, width - 4)
            lines.append([(title, TITLE), (" " + "─" * (width - cell_len(title) - 1), DIM)])
            continue
        drawn = sparkline(cell.curve, spark)
        used = 2 + names + 1 + values + 3
        lines.append(
            [
                ("  " + set_cell_size(cell.name, names) + " ", ""),
                (cell.value.rjust(values), cell.value_style),
                (f" {cell.arrow} ", cell.arrow_style),
                (drawn.ljust(width - used), cell.spark_style),
            ]
        )
    return lines


def progress(p: Standing, width: int) -> Line:
    """`main · epoch 24 ━━━━╸──── 62 %  62,464 / 100,000 steps  14.2k steps/s  0:04  ETA 0:03`."""
    share = min(max(p.position / p.total, 0.0), 1.0) if p.total else 1.0
    head = f"{clean(p.phase, 24)} · epoch {p.epoch:,} " if p.phase else f"epoch {p.epoch:,} "
    speed, left = f"{rate(p.speed)} {p.noun}/s", f"ETA {duration(p.eta)}"
    tail = f" {share:4.0%}  {p.position:,} / {p.total:,}  {speed}  {duration(p.seconds)}  {left}"
    if width - len(head) - len(tail) < 10:
        tail = f" {share:4.0%}  {p.position:,}  {speed}  {left}"
    room = max(width - cell_len(head) - len(tail), 5)
    full = int(share * room * 2)
    done = "━" * (full // 2) + "╸" * (full % 2)
    return [(head, "bold"), (done, GOOD), ("─" * (room - len(done)), DIM), (tail, "")]


def box(title: str, body: Sequence[Line], width: int, style: str) -> list[Line]:
    """A frame with a title."""
    inner = width - 4
    title = set_cell_size(title, min(cell_len(title), inner - 2))
    lines: list[Line] = [
        [("╭─ ", style), (title, f"bold {style}"), (f" {'─' * (inner - cell_len(title) - 1)}╮", style)]
    ]
    for line in body:
        used = sum(cell_len(text) for text, _ in line)
        lines.append([("│ ", style), *line, (" " * (inner - used), ""), (" │", style)])
    lines.append([("╰" + "─" * (width - 2) + "╯", style)])
    return lines


def header(title: str, facts: Mapping[str, str], width: int) -> list[Line]:
    """The header of a run: short facts two to a line, long ones below."""
    labels = max((cell_len(clean(key, 20)) for key in facts), default=0) + 2
    inner = width - 4
    half = inner // 2
    short: list[Line] = []
    long: list[Line] = []
    for key, value in facts.items():
        text = clean(value)
        fits = cell_len(text) <= half - labels - 2
        size = (half if fits else inner) - labels
        cell: Line = [(set_cell_size(clean(key, 20), labels), DIM), (set_cell_size(text, size), "")]
        (short if fits else long).append(cell)
    body = [[part for cell in short[i : i + 2] for part in cell] for i in range(0, len(short), 2)]
    return box(title, body + long, width, "cyan")


def summary(
    result: Mapping[str, object], history: History, rules: Rules, alerts: Sequence[str], width: int
) -> list[Line]:
    """The end of a run: curves, result, why it ended and what to do next; `result` as in Console.summary."""
    return [*_curves(history, rules, width), [], *_verdict(result, width), *_facts(result, alerts, width)]


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


def _verdict(result: Mapping[str, object], width: int) -> list[Line]:
    threshold, mean, std = (_number(result.get(key)) for key in ("threshold", "mean", "std"))
    size = min(width, 72)
    if mean is None:
        return box("FINISHED", [[("the run was not evaluated", "")]], size, DIM)
    score = f"evaluated mean return {points(mean)}" + (f" ± {points(std)}" if std is not None else "")
    if threshold is None:
        return box("FINISHED", [[(score, "bold"), ("  no threshold is set", DIM)]], size, SPARK)
    gap = f"{'+' if mean >= threshold else ''}{points(mean - threshold)}"
    body: list[Line] = [[(score, "bold"), (f"   threshold {points(threshold)}   gap {gap}", "")]]
    return box("SOLVED", body, size, GOOD) if mean >= threshold else box("NOT SOLVED", body, size, BAD)


def _facts(result: Mapping[str, object], alerts: Sequence[str], width: int) -> list[Line]:
    seconds = _number(result.get("seconds")) or 0.0
    steps, epochs, updates = (int(_number(result.get(key)) or 0) for key in ("env_steps", "epochs", "updates"))
    done, noun = (steps, "steps") if steps or not updates else (updates, "updates")
    speed = rate(done / seconds) if seconds > 0 else "-"
    counts = f"{steps:,} steps, {epochs:,} epochs, {updates:,} updates"
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
    following = result.get("next", _NEXT)
    commands = following if isinstance(following, Sequence) else _NEXT
    size = max((len(command) for command, _ in commands), default=0) + 3
    for i, (command, what) in enumerate(commands):
        lines.append([(("" if i else "next").ljust(9), DIM), (clean(command).ljust(size), "bold"), (clean(what), DIM)])
    return lines


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
