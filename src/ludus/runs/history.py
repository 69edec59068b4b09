"""Reads the rows of a run's metrics.jsonl, as far as needed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ludus.files import open_regular
from ludus.metrics.names import COLUMNS, EVAL_RETURN
from ludus.metrics.sinks.jsonl import parse_row

FILE = "metrics.jsonl"
_TAIL = 1 << 16
Row = dict[str, float | str]


def rows(folder: Path, key: str | None = None) -> Iterator[Row]:
    """Every row in order, or those with a metric; nothing if the file is missing."""
    needle = None if key is None else json.dumps(key).encode()
    for line in _lines(folder):
        if needle is None or needle in line:
            row = _row(line)
            if row is not None and (key is None or key in row):
                yield row


def evaluations(folder: Path) -> list[Row]:
    """The rows with an evaluation."""
    return list(rows(folder, EVAL_RETURN))


def sampled(folder: Path, most: int) -> list[Row]:
    """Evenly spaced rows and evaluations, at most twice `most` of each, and the last row; needs bounded memory."""
    spread, evaluated = _Thinned(most), _Thinned(most)
    needle, last = json.dumps(EVAL_RETURN).encode(), {}
    for i, line in enumerate(_lines(folder)):
        spread.add(i, line)
        if needle in line:
            evaluated.add(i, line)
        last = {i: line}
    chosen = {**dict(spread.items), **dict(evaluated.items), **last}
    found = (_row(chosen[i]) for i in sorted(chosen))
    return [row for row in found if row is not None]


def last_row(folder: Path) -> Row:
    """The newest whole row; empty if there is none."""
    try:
        with open_regular(folder / FILE) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL, 0))
            tail = file.read().splitlines()
    except OSError:
        return {}
    return next((row for line in reversed(tail) if (row := _row(line)) is not None), {})


def curve(folder: Path, key: str) -> tuple[list[float], list[float]]:
    """A metric over environment steps, or updates in a run that took none; finite points only."""
    found = list(rows(folder, key))
    x = x_axis(found)
    points = [(number(row.get(x)), number(row[key])) for row in found]
    good = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    return [x for x, _ in good], [y for _, y in good]


def x_axis(found: Sequence[Row]) -> str:
    """The counter that curves of these rows are drawn over."""
    return "env_steps" if not found or any(row.get("env_steps") for row in found) else "updates"


def metric_names(found: list[Row]) -> list[str]:
    """Every metric of some rows, in order of appearance."""
    names = dict.fromkeys(key for row in found for key in row)
    return [name for name in names if name not in COLUMNS]


def number(value: object) -> float:
    """A number as a float, anything else as NaN."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):  # JSON has whole numbers of any length
        return math.nan


def _lines(folder: Path) -> Iterator[bytes]:
    try:
        with open_regular(folder / FILE) as file:
            yield from file
    except OSError:
        return


def _row(line: bytes) -> Row | None:
    row = parse_row(line)
    return row if row is not None and "env_steps" in row else None


class _Thinned:
    """Evenly spaced items of a stream: when there are too many, every second one is dropped."""

    def __init__(self, most: int) -> None:
        self.items: list[tuple[int, bytes]] = []
        self._most, self._stride, self._seen = most, 1, 0

    def add(self, index: int, line: bytes) -> None:
        """Keep the item if it is one of the evenly spaced."""
        if self._seen % self._stride == 0:
            self.items.append((index, line))
        self._seen += 1
        if len(self.items) > 2 * self._most:
            self.items, self._stride = self.items[::2], 2 * self._stride
