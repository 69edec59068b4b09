"""Reads the rows of a run's metrics.jsonl, as far as needed."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ludus.files import open_regular
from ludus.metrics.names import COLUMNS, EVAL_RETURN
from ludus.metrics.sinks.jsonl import parse_row

FILE = "metrics.jsonl"
LARGEST = 1e150
"""Beyond it a number counts as infinite: squares, sums and axes of such numbers overflow."""
_TAIL, _BLOCK = 1 << 16, 1 << 20
Row = dict[str, float | str]


def rows(folder: Path, key: str | None = None) -> Iterator[Row]:
    """Every row in order, or those with a metric; nothing if the file is missing."""
    for line in _lines(folder) if key is None else _lines_with(folder, json.dumps(key).encode()):
        row = _row(line)
        if row is not None and (key is None or key in row):
            yield row


def evaluations(folder: Path) -> list[Row]:
    """The rows with an evaluation."""
    return list(rows(folder, EVAL_RETURN))


def sampled(folder: Path, most: int) -> list[Row]:
    """Evenly spaced rows and evaluations, at most twice `most` of each, and the last row; needs little memory."""
    needle = json.dumps(EVAL_RETURN).encode()
    marks = bytearray(needle in line for line in _lines(folder))
    stride, pause = max(len(marks) // most, 1), max(sum(marks) // most, 1)
    evaluated = itertools.accumulate(marks)
    found = []
    for i, (line, mark, count) in enumerate(zip(_lines(folder), marks, evaluated, strict=False)):
        wanted = i % stride == 0 or (mark and count % pause == 0) or i == len(marks) - 1
        if wanted and (row := _row(line)) is not None:
            found.append(row)
    return found


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
    """A metric over environment steps, or updates in a run that took none; finite points only, up to LARGEST."""
    found = list(rows(folder, key))
    x = x_axis(found)
    points = [(number(row.get(x)), number(row[key])) for row in found]
    good = [(x, y) for x, y in points if abs(x) < LARGEST and abs(y) < LARGEST]
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


def _lines_with(folder: Path, needle: bytes) -> Iterator[bytes]:
    """The lines with some bytes: looked for in blocks, which is several times as fast as line by line."""
    try:
        with open_regular(folder / FILE) as file:
            while block := file.read(_BLOCK):
                block += b"" if block.endswith(b"\n") else file.readline()
                hit = block.find(needle)
                while hit >= 0:
                    end = block.find(b"\n", hit) + 1 or len(block)
                    yield block[block.rfind(b"\n", 0, hit) + 1 : end]
                    hit = block.find(needle, end)
    except OSError:
        return


def _row(line: bytes) -> Row | None:
    row = parse_row(line)
    return row if row is not None and "env_steps" in row else None
