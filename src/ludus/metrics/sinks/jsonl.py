"""metrics.jsonl: append-only, one JSON object per row; new keys may appear at any time."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

from ludus.files import open_regular
from ludus.metrics.names import COLUMNS
from ludus.metrics.sinks import Row, Sink

_LARGEST = 2**63
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Jsonl(Sink):
    """Passes every row to the operating system before `write` returns; NaN and infinity are strings in the file."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        size = os.fstat(self._fd).st_size
        self._torn = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"
        self._lost = 0

    def write(self, row: Row) -> None:
        """Append one line; the first row after failures says in `lost_rows` how many are missing."""
        if self._lost:
            row = {**row, "lost_rows": self._lost}
        line = (b"\n" if self._torn else b"") + encode(row)
        self._lost += 1  # until it is written
        self._torn = os.write(self._fd, line) != len(line)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._lost = 0

    def close(self) -> None:
        """Flush to the disk and close."""
        if self._fd >= 0:
            descriptor, self._fd = self._fd, -1
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def encode(row: Row) -> bytes:
    """One row as one line of JSON."""
    return json.dumps({key: _strict(value) for key, value in row.items()}).encode() + b"\n"


def _strict(value: float | str) -> float | str:
    if isinstance(value, str) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def read_rows(path: Path) -> Iterator[dict[str, float | str]]:
    """The rows of a metrics.jsonl; other lines, such as one torn by a crash, are skipped."""
    with open_regular(path) as file:
        yield from filter(None, map(parse_row, file))


def parse_row(line: bytes) -> dict[str, float | str] | None:
    """The row of one line; None if it is not a row."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(_is_cell(value) for value in found.values()):
        return None
    row = {k: _NOT_FINITE.get(v, v) if isinstance(v, str) and k != "phase" else v for k, v in found.items()}
    counts = [row.get(key, 0) for key in COLUMNS if key != "phase"]
    return row if all(not isinstance(count, str) and abs(count) < _LARGEST for count in counts) else None


def _is_cell(value: object) -> bool:
    return isinstance(value, float | str) or (isinstance(value, int) and abs(value) < _LARGEST)
