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
NO_DECODER = (
    "This model has no decoder: what it predicts is compared with the latent states that it sees, not with images."
)
JUDGED, KINDS = ("reward", "value"), ("observed", "imagined")
MOST = 30
"""Rows of a table, and tables of errors: a file that somebody else wrote may be long."""


class NumberTable(NamedTuple):
    """Cells as text, the names of rows first."""

    head: tuple[str, ...]
    rows: list[list[str]]


class Imagined(NamedTuple):
    """What was imagined with one checkpoint."""

    folder: Path
    videos: list[Path]
    plots: list[Path]
    tables: list[NumberTable]
    note: str = ""
    """What a reader has to know about the numbers."""


def imaginations(run: Path) -> list[Imagined]:
    """Everything in the folder of a run, the newest file last."""
    found = []
    for path in sorted(run.glob(f"imagination/*/{FILE}"), key=lambda path: path.lstat().st_mtime):
        folder = path.parent
        videos, plots = ([p for p in sorted(folder.glob(kind)) if p.is_file()] for kind in ("*.mp4", "*.png"))
        told = read_or_empty(path)
        found.append(Imagined(folder, videos, plots, tables(told), note(told)))
    return found


def note(told: Mapping[str, object]) -> str:
    """A line about a model that cannot show what it sees."""
    return NO_DECODER if told.get("decoder") is False else ""


def tables(told: Mapping[str, object]) -> list[NumberTable]:
    """The numbers of an `imagine.json`; whatever is not as it should be is left out."""
    found = []
    for part, rows in list(mapping(told.get("errors")).items())[:MOST]:
        head = (f"steps ahead: {part}", "rows", "squared error", "if nothing changed", "ratio")
        found.append(NumberTable(head, [_error(row) for row in _list(rows)]))
    judged = {f"{name}, {kind}": mapping(mapping(told.get(name)).get(kind)) for name in JUDGED for kind in KINDS}
    cells = [[name, *_texts(row, "rows", "correlation", "mean_absolute_error")] for name, row in judged.items() if row]
    found.append(NumberTable(("", "rows", "correlation", "absolute error"), cells))
    for kind in KINDS:
        bins = [row for row in _list(mapping(told.get("ends")).get(kind)) if number(row.get("rows")) > 0]
        cells = [
            [" to ".join(_texts(row, "from", "to")), *_texts(row, "rows", "predicted", "observed")] for row in bins
        ]
        found.append(NumberTable((f"chance of an end, {kind}", "rows", "predicted", "ended"), cells))
    return [table for table in found if table.rows]


def _error(row: Mapping[str, object]) -> list[str]:
    ratio = number(row.get("error")) / (number(row.get("unchanged")) or math.nan)
    return [*_texts(row, "ahead", "rows", "error", "unchanged"), "-" if math.isnan(ratio) else f"{ratio:.2f}"]


def _list(value: object) -> list[Mapping[str, object]]:
    return [mapping(row) for row in value[:MOST]] if isinstance(value, list) else []


def _texts(row: Mapping[str, object], *keys: str) -> list[str]:
    values = {key: number(row.get(key)) for key in keys}
    return [
        "-" if math.isnan(value) else f"{value:,.0f}" if key == "rows" else f"{value:.4g}"
        for key, value in values.items()
    ]
