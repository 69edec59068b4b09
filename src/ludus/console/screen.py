"""The content of the console as plain data: a line is a list of (text, style), which the Console prints.

Widths are computed here because rich's own tables are too slow: a redraw may take about a millisecond.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size

from ludus.console.history import History, Series
from ludus.text import ascii_only, clean, duration, near, number, points, rate, sparkline
from ludus.watch.rules import Rule, Rules

if TYPE_CHECKING:
    from rich.segment import Segments

Line = list[tuple[str, str]]
TITLE, DIM, SPARK = "bold cyan", "bright_black", "cyan"
GOOD, BAD, WARN = "green", "red", "yellow"
_TWO_COLUMNS = 76
_NEXT = (("ludus play @last", "watch it play"), ("ludus play @last --video auto", "record it"))


class Standing(NamedTuple):
    """How far the run is, counted like its budget."""

    position: int
    total: int
    noun: str
    speed: float
    seconds: float
    epoch: int
    updates: int
    phase: str
    learning_starts: int = 0

    @property
    def eta(self) -> float:
        """Seconds that are left at the present speed."""
        return max(self.total - self.position, 0) / self.speed if self.speed > 0 else math.inf

    @property
    def left(self) -> str:
        """`ETA 0:38`; while actions are random their speed promises nothing."""
        if self.position < self.learning_starts:
            return f"ETA when learning starts at {self.learning_starts:,}"
        return f"ETA {duration(self.eta)}"


def table(history: History, rules: Rules, width: int, height: int) -> list[Line]:
    """The metrics by group in one or two columns; without room for all, the least important are left out."""
    keys = sorted((key for key in history.series if rules[key].show_in_table), key=rules.rank)
    columns = _columns(keys, rules, width)
    while len(keys) > 1 and max(map(len, columns)) > height:
        keys.pop()
        columns = _columns(keys, rules, width)
    gap = 3 if width >= 96 else 1
    each = (width - gap * (len(columns) - 1)) // len(columns)
    drawn = [_column(column, history, rules, each) for column in columns]
    lines: list[Line] = []
    for i in range(max(map(len, drawn))):
        line: Line = []
        for j, column in enumerate(drawn):
            part = column[i] if i < len(column) else [(" " * each, "")]
            line += ([(" " * gap, "")] if j else []) + part
        lines.append(line)
    return lines


def _columns(keys: Sequence[str], rules: Rules, width: int) -> list[list[tuple[str, str]]]:
    """(group, "") for titles and (group, metric) in reading order, split into columns of about equal length."""
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(rules.group(key), []).append(key)
    blocks = [[(name, key) for key in ("", *groups[name])] for name in sorted(groups, key=rules.group_rank)]
    sizes = [len(block) for block in blocks]
    split = len(blocks)
    if width >= _TWO_COLUMNS and len(blocks) > 1:
        split = min(range(1, len(blocks)), key=lambda i: max(sum(sizes[:i]), sum(sizes[i:])))
    columns = [[cell for block in part for cell in block] for part in (blocks[:split], blocks[split:])]
    return columns if columns[1] else columns[:1]


def _column(cells: Sequence[tuple[str, str]], history: History, rules: Rules, width: int) -> list[Line]:
    rows = {key: _row(key, group, history.series[key], rules[key]) for group, key in cells if key}
    names = min(max((cell_len(name) for name, *_ in rows.values()), default=0), 22)
    values = max([8, *(len(value) for _, (value, _), *_ in rows.values())])
    room = width - names - values - 6
    lines: list[Line] = []
    for group, key in cells:
        if not key:
            title = clean(group, width - 4)
            lines.append([(title, TITLE), (" " + "─" * (width - cell_len(title) - 1), DIM)])
            continue
        name, (value, style), arrow, (curve, curve_style) = rows[key]
        spark = sparkline(curve, max(min(room, 32), 0)).ljust(room)
        name = f"  {set_cell_size(name, names)} "
        lines.append([(name, ""), (value.rjust(values), style), arrow, (spark, curve_style)])
    return lines


def _row(
    key: str, group: str, series: Series, rule: Rule
) -> tuple[str, tuple[str, str], tuple[str, str], tuple[Sequence[float], str]]:
    """Name, value, arrow and curve of a metric, all but the name with a style."""
    outside = not math.isfinite(series.last) or rule.outside(series.last)
    value = ("!" if outside else "") + number(series.last, rule.precision, trim=rule.trim)
    style = "bold " * rule.bold + (WARN if outside else "")
    rose, fell = series.last > series.previous, series.last < series.previous
    arrow_style = DIM if rule.better is None else GOOD if rose == (rule.better == "up") else BAD
    arrow = " ▲ " if rose else " ▼ " if fell else "   "
    name = key.removeprefix(group).removeprefix("/") if key.startswith(f"{group}/") else key.partition("/")[2]
    name = clean(name.removeprefix("roll/").removeprefix("time/"), 40)
    curve = series.curve() if rule.sparkline and series.min < series.max else ()
    return name, (value, style.strip()), (arrow, arrow_style), (curve, f"bold {GOOD}" if rule.highlight else SPARK)


def progress(p: Standing, width: int) -> Line:
    """`main · epoch 24 ━━━━╸──── 62 %  62,464 / 100,000 steps  14.2k steps/s  0:04  ETA 0:03`."""
    share = min(max(p.position / p.total, 0.0), 1.0) if p.total else 1.0
    head = f"{clean(p.phase, 24)} · epoch {p.epoch:,} " if p.phase else f"epoch {p.epoch:,} "
    speed = f"{rate(p.speed)} {p.noun}/s"
    tail = f" {share:4.0%}  {p.position:,} / {p.total:,}  {speed}  {duration(p.seconds)}  {p.left}"
    if width - len(head) - len(tail) < 10:
        tail = f" {share:4.0%}  {p.position:,}  {speed}  {p.left if p.position >= p.learning_starts else ''}".rstrip()
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


def curves(history: History, rules: Rules, width: int) -> list[Line]:
    """The history of the main metrics, at the end of a run."""
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


def verdict(result: Mapping[str, object], width: int) -> list[Line]:
    """The last evaluation against the threshold; `result` as in Console.summary."""
    threshold, mean, std = (_number(result.get(key)) for key in ("threshold", "mean", "std"))
    size = min(width, 72)
    stopped = result.get("state") == "stopped"
    ended, colour = ("STOPPED", WARN) if stopped else ("FINISHED", SPARK)
    if mean is None:
        return box(ended, [[("the run was not evaluated", "")]], size, WARN if stopped else DIM)
    score = f"evaluated mean return {points(mean)}" + (f" ± {points(std)}" if std is not None else "")
    if threshold is None:
        return box(ended, [[(score, "bold"), ("  no threshold is set", DIM)]], size, colour)
    gap = f"{'+' if mean >= threshold else ''}{points(mean - threshold)}"
    body: list[Line] = [[(score, "bold"), (f"   threshold {points(threshold)}   gap {gap}", "")]]
    if stopped:
        return box(ended, body, size, colour)
    return box("SOLVED", body, size, GOOD) if mean >= threshold else box("NOT SOLVED", body, size, BAD)


def facts(result: Mapping[str, object], alerts: Sequence[str], width: int) -> list[Line]:
    """Why the run ended and what to do next; `result` as in Console.summary."""
    seconds = _number(result.get("seconds")) or 0.0
    steps, epochs, updates = (int(_number(result.get(key)) or 0) for key in ("env_steps", "epochs", "updates"))
    done, noun = (steps, "steps") if steps or not updates else (updates, "updates")
    speed = rate(done / seconds) if seconds > 0 else "-"
    done_so_far = ((steps, "step"), (epochs, "epoch"), (updates, "update"))
    counts = ", ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in done_so_far)
    told = [
        ("stopped", str(result.get("reason") or "the budget is used up"), ""),
        ("took", f"{duration(seconds)} for {counts}, {speed} {noun}/s", ""),
        *(("alert", text, WARN) for text in alerts),
        *([("folder", near(Path(str(result["folder"]))), "")] if result.get("folder") else []),
    ]
    lines: list[Line] = []
    for label, text, style in told:
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


def texts(lines: Iterable[Line]) -> list[str]:
    """Lines without their styles."""
    return ["".join(part for part, _ in line).rstrip() for line in lines]


def drawn(lines: list[Line], plain_ascii: bool) -> Segments:
    """Lines for rich, without wrapping and markup, so that no text is interpreted as markup."""
    from rich.segment import Segment, Segments
    from rich.style import Style

    parts = [part for line in lines for part in (*line, ("\n", ""))]
    texts = [(ascii_only(text) if plain_ascii and text != "\n" else text, style) for text, style in parts]
    return Segments(Segment(text, Style.parse(style) if style else None) for text, style in texts)
