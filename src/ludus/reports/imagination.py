"""What `ludus imagine` left in a run folder: its pictures, and its numbers as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ludus.archive.history import number
from ludus.archive.record import mapping
from ludus.archive.store import read_or_empty

FILE = "imagine.json"


class Imagined(NamedTuple):
    """What was imagined with one checkpoint."""

    folder: Path
    videos: list[Path]
    plots: list[Path]
    tables: list[NumberTable]


def imaginations(run: Path) -> list[Imagined]:
    """Everything in the folder of a run, the newest file last."""
    found = []
    for path in sorted(run.glob(f"imagination/*/{FILE}"), key=lambda path: path.stat().st_mtime):
        folder = path.parent
        videos, plots = ([p for p in sorted(folder.glob(kind)) if p.is_file()] for kind in ("*.mp4", "*.png"))
        found.append(Imagined(folder, videos, plots, tables(read_or_empty(path))))
    return found


class NumberTable(NamedTuple):
    """Cells as text, the names of rows first."""

    head: tuple[str, ...]
    rows: list[list[str]]


def tables(told: Mapping[str, object]) -> list[NumberTable]:
    """The numbers of an `imagine.json`; whatever is not as it should be is left out."""
    found = []
    for part, rows in mapping(told.get("errors")).items():
        head = (f"steps ahead: {part}", "rows", "squared error", "if nothing changed", "ratio")
        found.append(NumberTable(head, [_error(row) for row in _list(rows)]))
    sums = [
        [f"{name}, {kind}", _count(row), _text(row, "correlation"), _text(row, "mean_absolute_error")]
        for name in ("reward", "value")
        for kind, row in ((kind, mapping(row)) for kind, row in mapping(told.get(name)).items())
    ]
    found.append(NumberTable(("", "rows", "correlation", "absolute error"), sums))
    for kind, bins in mapping(told.get("ends")).items():
        rows = [
            [
                f"{_text(row, 'from')} to {_text(row, 'to')}",
                _count(row),
                _text(row, "predicted"),
                _text(row, "observed"),
            ]
            for row in _list(bins)
            if number(row.get("rows")) > 0
        ]
        found.append(NumberTable((f"chance of an end, {kind}", "rows", "predicted", "ended"), rows))
    return [table for table in found if table.rows]


def _error(row: Mapping[str, object]) -> list[str]:
    ratio = number(row.get("error")) / (number(row.get("unchanged")) or math.nan)
    last = "-" if math.isnan(ratio) else f"{ratio:.2f}"
    return [_text(row, "ahead"), _count(row), _text(row, "error"), _text(row, "unchanged"), last]


def _list(value: object) -> list[Mapping[str, object]]:
    return [mapping(row) for row in value] if isinstance(value, list) else []


def _count(row: Mapping[str, object]) -> str:
    return f"{number(row.get('rows')):,.0f}"


def _text(row: Mapping[str, object], key: str) -> str:
    value = number(row.get(key))
    return "-" if math.isnan(value) else f"{value:.4g}"
