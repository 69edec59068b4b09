"""A metric in a metrics.jsonl that is too large to be read whole: a few rows of each of many equal parts.

So all of a rare metric is found, and an even sample of a frequent one. A file that has grown is searched from where it
ended before. Nothing is mapped into memory: a file that somebody cuts meanwhile would end the process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from ludus.archive.history import Row
from ludus.files import open_regular
from ludus.metrics.sinks.jsonl import parse_row

PARTS, MOST_PER_PART = 1500, 2
_BLOCK, _LONGEST_LINE = 1 << 16, 1 << 20
_PLACES = 20


class Search:
    """The rows with one metric that were found so far."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name, self._needle = path, name, json.dumps(name).encode() + b":"
        self._inode, self._at, self._part = -1, 0, 1
        self._rows: list[Row] = []

    def rows(self) -> list[Row]:
        """In the order of the file; empty if it cannot be read."""
        try:
            with open_regular(self.path, follow=False) as file:
                facts = os.fstat(file.fileno())
                if facts.st_ino != self._inode or facts.st_size < self._at:
                    self._inode, self._at, self._rows = facts.st_ino, 0, []
                    self._part = max(facts.st_size // PARTS, 1)
                while self._at < facts.st_size and self._search(file, min(self._at + self._part, facts.st_size)):
                    pass
        except OSError:
            self._inode, self._rows = -1, []
        return self._rows

    def _search(self, file: BufferedReader, end: int) -> bool:
        """Take some rows of one part; False at a line that is still being written."""
        found = 0
        for begin, lines in _blocks(file, self._at, end):
            self._at = begin + lines.rfind(b"\n") + 1
            hit = lines.find(self._needle)
            while hit >= 0 and found < MOST_PER_PART:
                start, stop = lines.rfind(b"\n", 0, hit) + 1, lines.find(b"\n", hit)
                row = parse_row(lines[start:stop]) if stop >= 0 else None
                if row is not None and self.name in row:
                    self._rows.append(row)
                    found += 1
                hit = lines.find(self._needle, stop) if stop >= 0 else -1
            if not lines.endswith(b"\n"):
                return False
            if found == MOST_PER_PART and self._at < end:
                self._at = _next_line(file, end)
                return True
        return True


def names_in(path: Path) -> set[str]:
    """Every key in rows of the beginning, the end and places between."""
    found: set[str] = set()
    with open_regular(path, follow=False) as file:
        size = os.fstat(file.fileno()).st_size
        for place in (*range(0, size, size // _PLACES + 1), max(size - _BLOCK, 0)):
            begin = _next_line(file, place)
            for _, lines in _blocks(file, begin, min(begin + _BLOCK, size)):
                found.update(key for line in lines.splitlines() for key in parse_row(line) or ())
    return found


def _blocks(file: BufferedReader, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines from `begin`, which is the start of one, until past `end`, with their places."""
    while begin < end:
        file.seek(begin)
        lines = file.read(min(_BLOCK, end - begin))
        lines += b"" if lines.endswith(b"\n") else file.readline(_LONGEST_LINE)
        if not lines:
            return
        yield begin, lines
        begin += len(lines)


def _next_line(file: BufferedReader, place: int) -> int:
    """Where the first line begins that does not begin before a place."""
    file.seek(max(place - 1, 0))
    return file.tell() + len(file.readline(_LONGEST_LINE)) if place else 0
