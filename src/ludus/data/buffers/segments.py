"""Slots of several environments in segments, each written once, saved once and checked when it is read.

Every environment has an endless row of numbered slots, cut into segments of equal length; the newest `rows` slots are
alive, older ones are dropped. A segment is append-only: its slots are filled in order and never changed, so that a
checkpoint only records how far it was filled and the sha256 of that part. In memory a new segment overwrites one whose
slots were all dropped. In files it overwrites one that neither the living slots nor a kept checkpoint refer to.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ludus import files
from ludus.errors import DataError, ResourceError
from ludus.types import Array, State

SEGMENT_BYTES = 4 << 20
LEAST_SEGMENTS = 16
"""Least number of segments per environment: dropped slots are freed segment by segment."""


class ColumnSpec(NamedTuple):
    """Shape and dtype of one slot of a column."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Bytes of one slot."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass
class Segment:
    """Place of a segment in the files, how many rows are written there, and their sha256."""

    place: int
    rows: int = 0
    sha256: str = ""


class SegmentFile:
    """Columns of slots; `slots(b, a)` are the positions in them of slot `a` of environment `b`."""

    def __init__(
        self, columns: Mapping[str, ColumnSpec], num_envs: int, rows: int, mapped: bool, folder: Path | None
    ) -> None:
        self.columns, self.num_envs, self.rows, self.mapped, self.folder = dict(columns), num_envs, rows, mapped, folder
        self.row_bytes = sum(column.bytes for column in columns.values())
        self.segment = max(1, min(SEGMENT_BYTES // self.row_bytes, rows // LEAST_SEGMENTS))
        self.segments = -(-(rows + 1) // self.segment) + 1  # one more slot holds the next observation
        self.ring = self.segments * self.segment
        self.end = np.zeros(num_envs, np.int64)
        self.known: dict[tuple[int, int], Segment] = {}
        self.held: dict[str, list[int]] = {}
        self._free: list[int] = []
        self._places = 0
        self._table = np.arange(num_envs * self.segments).reshape(num_envs, self.segments)
        self.data: dict[str, Array] = {}

    @staticmethod
    def bytes_for(columns: Mapping[str, ColumnSpec], num_envs: int, rows: int) -> int:
        """Bytes it would take."""
        empty = SegmentFile(columns, num_envs, rows, False, None)
        return num_envs * empty.ring * empty.row_bytes

    def allocate(self) -> None:
        """Allocate the memory, or create the files."""
        if self.mapped:
            self._table.fill(-1)
            self._begin_segments(np.zeros(self.num_envs, np.int64), np.zeros(self.num_envs, np.int64))
            return
        size = self.num_envs * self.ring
        try:
            self.data = {name: np.zeros((size, *c.shape), c.dtype) for name, c in self.columns.items()}
        except MemoryError:
            problem = f"{size * self.row_bytes / 2**30:.1f} GB cannot be had"
            raise ResourceError("buffers", problem, "lower its size, or use storage: disk") from None

    def slots(self, b: Array, a: Array) -> Array:
        """Positions of slots (b, a) in the columns."""
        if not self.mapped:  # segments lie side by side: no table to look them up in
            return self.numbers(b, a)
        number, offset = np.divmod(a, self.segment)
        return self._table[b, number % self.segments] * self.segment + offset

    def numbers(self, b: Array, a: Array) -> Array:
        """One number per slot, which stays the same while the slot is alive."""
        return (b - a // self.ring) * self.ring + a  # numpy divides by a number faster than it takes remainders

    def take(self, name: str, b: Array, a: Array, out: Array | None = None) -> Array:
        """Values of a column in slots (b, a)."""
        return self.data[name].take(self.slots(b, a), 0, out, "clip")

    def advance(self, end: Array) -> None:
        """Make room up to and including slot `end` of each environment; slots beyond the window are dropped."""
        if self.mapped:
            self._begin_segments(self.end // self.segment + 1, end // self.segment)

    def _begin_segments(self, first: Array, last: Array) -> None:
        for b in np.flatnonzero(last >= first):
            for number in range(int(first[b]), int(last[b]) + 1):
                old = self.known.pop((int(b), number - self.segments), None)
                if old is not None and not any(old.place in places for places in self.held.values()):
                    self._free.append(old.place)
                place = self._take_place()
                self.known[int(b), number] = Segment(place)
                self._table[b, number % self.segments] = place
        if not self.data or len(next(iter(self.data.values()))) < self._places * self.segment:
            self._map()

    def _take_place(self) -> int:
        if self._free:
            return self._free.pop()
        self._places += 1
        return self._places - 1

    # ---- files ---------------------------------------------------------------------------------------------------

    def _map(self) -> None:
        """Map the files into memory, with their space on the disk reserved; they grow by an eighth."""
        room = max(self.num_envs * (self.segments + 1), self._places + self._places // 8) * self.segment
        self.data = {}
        for name, column in self.columns.items():
            grow(self._file(name), room * column.bytes)
            shape = (room, *column.shape)
            self.data[name] = (
                np.memmap(self._file(name), column.dtype, "r+", shape=shape) if column.bytes else np.zeros(shape)
            )

    def _file(self, name: str) -> Path:
        assert self.folder is not None, "a buffer on disk needs a folder"
        return self.folder / f"{name}.bin"

    def save(self, tag: str, keep: Iterable[str]) -> State:
        """Write new slots to the files, wait for the disk, and return the state for checkpoint `tag`.

        It and the checkpoints in `keep` stay readable; others lose the segments that only they referred to.
        """
        alive = self._alive()
        self.held = {name: places for name, places in self.held.items() if name in set(keep)}
        self.known = {key: segment for key, segment in self.known.items() if key in alive}
        self._find_free()
        try:
            self._write(alive)
        except OSError as error:
            full = f"cannot save the buffer: {error.strerror}"
            raise ResourceError(str(self.folder), full, "free some space") from error
        self.held[tag] = sorted(segment.place for segment in self.known.values())
        listed = sorted(self.known.items())
        return {
            "rows": self.rows,
            "segment": self.segment,
            "columns": {name: [list(c.shape), c.dtype.str] for name, c in self.columns.items()},
            "end": self.end.tolist(),
            "segments": [[b, number, segment.rows, segment.sha256] for (b, number), segment in listed],
            "places": {"of": [segment.place for _, segment in listed], "held": self.held},
        }

    def _alive(self) -> dict[tuple[int, int], int]:
        """Segments with living slots, and how far each is filled."""
        return {
            (b, number): min(self.segment, end - number * self.segment)
            for b, end in enumerate(self.end.tolist())
            for number in range(max(end - self.rows, 0) // self.segment, end // self.segment + 1)
        }

    def _find_free(self) -> None:
        used = {segment.place for segment in self.known.values()}.union(*self.held.values())
        self._free = sorted(set(range(self._places)) - used, reverse=True)

    def _write(self, alive: Mapping[tuple[int, int], int]) -> None:
        for key in alive:
            if key not in self.known:
                self.known[key] = Segment(self._take_place())
        changed = {key: rows for key, rows in alive.items() if self.known[key].rows != rows}
        for name, data in self.data.items():
            if isinstance(data, np.memmap):
                data.flush()
            elif not self.mapped:
                self._write_column(name, changed)
        for key, rows in changed.items():
            self.known[key].rows, self.known[key].sha256 = rows, self._digest(key, rows)

    def _write_column(self, name: str, changed: Mapping[tuple[int, int], int]) -> None:
        with _opened(self._file(name)) as file:
            for key, rows in changed.items():
                known = self.known[key]
                new = self._part(name, key, known.rows, rows)
                write_all(file, new, (known.place * self.segment + known.rows) * self.columns[name].bytes)
            file.flush()
            os.fsync(file.fileno())

    def _part(self, name: str, key: tuple[int, int], first: int, last: int) -> Array:
        b, number = key
        start = int(self._table[b, number % self.segments]) * self.segment
        return self.data[name][start + first : start + last]

    def _digest(self, key: tuple[int, int], rows: int) -> str:
        digest = hashlib.sha256()
        for name in self.columns:
            digest.update(self._part(name, key, 0, rows).data)
        return digest.hexdigest()

    def load(self, state: State, source: Path) -> None:
        """Read the segments that a state refers to; DataError names what is missing, short or changed."""
        self.end, own, self.known = np.array(state["end"], np.int64), source == self.folder, {}
        self._check(state, source)
        listed = list(zip(state["segments"], state["places"]["of"], strict=True))
        if own:
            self.held = {str(tag): list(kept) for tag, kept in state["places"]["held"].items()}
            self._places = 1 + max([-1, *_places(state)])
        for (b, number, rows, sha), place in listed:
            if own:
                self.known[b, number] = Segment(place, rows, sha)
            elif self.mapped:
                self.known[b, number] = Segment(self._take_place())
            if self.mapped:
                self._table[b, number % self.segments] = self.known[b, number].place
        if self.mapped:
            self._map()
        if not (own and self.mapped):
            for name in self.columns:
                self._read_column(source / f"{name}.bin", name, listed)
        for (b, number, rows, sha), _ in listed:
            if rows and (found := self._digest((b, number), rows)) != sha:
                where = f"steps {number * self.segment} to {number * self.segment + rows - 1} of environment {b}"
                raise DataError(str(source), f"{where}: expected sha256 {sha[:12]}, found {found[:12]}", DAMAGED)
        self._find_free()

    def _check(self, state: State, source: Path) -> None:
        """Refuse segments other than those that so many steps fill, and places far beyond the files: both are numbers
        of a file, with which memory is indexed and taken."""
        first, last = np.maximum(self.end - self.rows, 0) // self.segment, self.end // self.segment
        listed, numbers = state["segments"], [number for entry in state["segments"] for number in entry[:3]]
        fits = (
            self.end.shape == (self.num_envs,)
            and bool((self.end >= 0).all())
            and len(listed) == int((last - first + 1).sum())
            and all(type(number) is int for number in numbers)
            and {(b, number): rows for b, number, rows, _ in listed} == self._alive()
        )
        if not fits:
            raise DataError(str(source), "its list of segments is not that of its steps", DAMAGED)
        name = max(self.columns, key=lambda name: self.columns[name].bytes)
        path, tags = source / f"{name}.bin", len(state["places"]["held"])
        bound = self.num_envs * (tags + 2)  # segments that were begun, of which nothing is written yet
        if path.is_file():
            bound += 2 * path.stat().st_size // (self.segment * self.columns[name].bytes)
        if not all(type(place) is int and 0 <= place <= bound for place in _places(state)):
            raise DataError(str(source), f"its segments lie beyond the end of {path.name}", DAMAGED)

    def _read_column(self, path: Path, name: str, listed: Sequence[tuple[Any, int]]) -> None:
        try:
            with files.open_regular(path) as file:  # not a pipe, which would never end
                for (b, number, rows, _), place in listed:
                    part = self._part(name, (b, number), 0, rows)
                    file.seek(place * self.segment * self.columns[name].bytes)
                    if file.readinto(part.data) != part.nbytes:
                        raise DataError(str(path), f"ends at {path.stat().st_size} bytes, too early", DAMAGED)
        except OSError as error:
            raise DataError(str(path), f"cannot be read: {error.strerror}", DAMAGED) from None


DAMAGED = "resume an older checkpoint with RUN/step=N, or begin with an empty buffer: --rebuild-buffer"


def columns_of(state: State) -> dict[str, ColumnSpec]:
    """The columns of a saved state."""
    return {name: ColumnSpec(tuple(shape), np.dtype(dtype)) for name, (shape, dtype) in state["columns"].items()}


def _places(state: State) -> list[int]:
    """Places in the files that the segments of a state and of all kept checkpoints have."""
    return [*state["places"]["of"], *(place for kept in state["places"]["held"].values() for place in kept)]


def write_all(file: BinaryIO, array: Array, offset: int) -> None:
    """Write an array at `offset`."""
    file.seek(offset)
    file.write(array.data)


def grow(path: Path, size: int) -> None:
    """Make a file at least `size` bytes long, with the space reserved on the disk."""
    try:
        with _opened(path) as file:
            if os.fstat(file.fileno()).st_size < size:
                os.posix_fallocate(file.fileno(), 0, size)  # a hole that cannot be filled later would kill the process
    except OSError as error:
        problem = f"{size / 2**30:.1f} GB cannot be had: {error.strerror}"
        raise ResourceError(str(path), problem, "lower the buffer's size, or free some space") from None


def _opened(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+b")
