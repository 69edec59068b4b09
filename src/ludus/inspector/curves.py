"""Curves of metrics.jsonl for the screen: no more points than pixels, whatever the length of the file.

A file of moderate size is read once and then followed; in a larger one each metric is searched for (search.py).
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ludus.archive.history import FILE, Row, number
from ludus.files import open_regular
from ludus.inspector.search import Search, names_in
from ludus.metrics.names import COLUMNS
from ludus.metrics.sinks.jsonl import parse_row
from ludus.types import Array

WHOLE = 48 << 20
"""Bytes up to which a file is read whole."""
AXES = ("env_steps", "updates", "seconds")
_KEPT = 64


class MetricsFile:
    """The rows of one file, read as far as it goes; a file that was cut or replaced is read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._searches: dict[str, Search] = {}
        self._forget()

    def _forget(self) -> None:
        self._at, self._inode, self._rest, self.count = 0, -1, b"", 0
        self.columns: dict[str, tuple[list[int], list[float]]] = {}

    def column(self, name: str, axes: Sequence[str]) -> list[Array]:
        """The axes and the values of a metric, in the order of the file."""
        with self._lock:
            if self._size() > WHOLE:
                rows = self._searches.setdefault(name, Search(self.path, name)).rows()
                return [np.array([number(row.get(key)) for row in rows]) for key in (*axes, name)]
            self._refresh()
            at, values = self.columns.get(name, ([], []))
            found = []
            for axis in axes:
                known = dict(zip(*self.columns.get(axis, ([], [])), strict=True))
                found.append(np.array([known.get(i, math.nan) for i in at]))
            return [*found, np.array(values)]

    def names(self) -> list[str]:
        """Every metric that rows have; of a large file those of its beginning, its end and parts between."""
        with self._lock:
            if self._size() > WHOLE:
                found = names_in(self.path)
            else:
                self._refresh()
                found = {*self.columns}
            return sorted(name for name in found if name not in COLUMNS)

    def _size(self) -> int:
        try:
            return self.path.lstat().st_size
        except OSError:
            return 0

    def _refresh(self) -> None:
        try:
            with open_regular(self.path, follow=False) as file:
                facts = os.fstat(file.fileno())
                if facts.st_size < self._at or facts.st_ino != self._inode:
                    self._forget()
                    self._inode = facts.st_ino
                file.seek(self._at)
                data = self._rest + file.read(facts.st_size - self._at)
                self._at = facts.st_size
        except OSError:
            self._forget()
            return
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            if (row := parse_row(line)) is not None:
                self._add(row)

    def _add(self, row: Row) -> None:
        for key, value in row.items():
            if key != "phase":
                at, values = self.columns.setdefault(key, ([], []))
                at.append(self.count)
                values.append(number(value))
        self.count += 1


class Curves:
    """The metrics of all runs of a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files: OrderedDict[str, MetricsFile] = OrderedDict()
        self._lock = threading.Lock()

    def names(self, run: str) -> list[str]:
        """Every metric of a run."""
        return self._file(run).names()

    def points(self, run: str, name: str, axes: Sequence[str]) -> list[list[float]]:
        """Axes and values of a metric, all points."""
        return [column.tolist() for column in self._file(run).column(name, axes)]

    def curve(self, run: str, name: str, axis: str, most: int) -> dict[str, list[float]]:
        """A metric over one axis in at most about `most` points."""
        x, y = self._file(run).column(name, [axis])
        good = np.isfinite(x)
        x, y = downsample(x[good], y[good], most)
        return {"x": x.tolist(), "y": y.tolist()}

    def _file(self, run: str) -> MetricsFile:
        with self._lock:
            if run not in self._files:
                self._files[run] = MetricsFile(self.root / run / FILE)
                if len(self._files) > _KEPT:
                    self._files.popitem(last=False)
            self._files.move_to_end(run)
            return self._files[run]


def downsample(x: Array, y: Array, most: int) -> tuple[Array, Array]:
    """Of each of `most` / 2 parts the lowest and the highest point, so that no spike is lost; and every gap (NaN)."""
    if len(x) <= most:
        return x, y
    edges = np.linspace(0, len(x), max(most // 2, 1) + 1).astype(int)
    kept: list[int] = []
    for low, high in itertools.pairwise(edges):
        part = y[low:high]
        if len(part) == 0:
            continue
        if not np.isfinite(part).any():
            kept.append(int(low))
            continue
        kept += sorted({int(low + np.nanargmin(part)), int(low + np.nanargmax(part))})
        gaps = np.flatnonzero(~np.isfinite(part))
        if len(gaps):
            kept.append(int(low + gaps[0]))
    order = sorted({0, len(x) - 1, *kept})
    return x[order], y[order]
