"""metrics.csv: the rows as a table; new columns are added, none is ever removed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

from ludus import files
from ludus.metrics.sinks import Row, Sink


class Csv(Sink):
    """Appends rows; for a new key the file is rewritten with one more column."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns: list[str] = []
        self._names: dict[str, str] = {}
        self._file: TextIO | None = None
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                self._columns = next(csv.reader(file), [])
            self._rewrite(self._columns)  # drops a last row torn by a crash

    def write(self, row: Row) -> None:
        """Append one row."""
        names = {key: _cell(key) for key in row if key not in self._names}
        new = [name for name in names.values() if name not in self._columns]
        if new:
            self._rewrite([*self._columns, *new])
        self._names.update(names)
        cells = {self._names[key]: _cell(value) for key, value in row.items()}
        assert self._file is not None
        csv.writer(self._file).writerow([cells.get(column, "") for column in self._columns])
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rewrite(self, columns: list[str]) -> None:
        with files.replacing(self.path, durable=False) as raw:
            file = io.TextIOWrapper(raw, newline="", encoding="utf-8")
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows([*row, *[""] * (len(columns) - len(row))] for row in self._rows())
            file.detach()
        self.close()
        self._columns = columns
        self._file = self.path.open("a", newline="", encoding="utf-8")

    def _rows(self) -> Iterator[list[str]]:
        if not self.path.exists():
            return
        with self.path.open(newline="", encoding="utf-8") as file:
            yield from islice(csv.reader(line for line in file if line.endswith("\n")), 1, None)


def _cell(value: float | str) -> str:
    """A cell on one line; text that a spreadsheet would run as a formula is quoted."""
    if not isinstance(value, str):
        return str(value)
    flat = " ".join(value.splitlines())
    return "'" + flat if flat.startswith(("=", "+", "-", "@", "\t")) else flat
