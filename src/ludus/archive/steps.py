"""The stored steps of a checkpoint as files of their own, one for each segment, named by the sum of its bytes.

A buffer's columns are large files that are written in place. Here a full segment is a file that never changes again, so
that an archive need not take it twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ludus import files
from ludus.errors import DataError
from ludus.types import State

PIECE = re.compile(r"steps-[0-9a-f]{64}\.bin")
LARGEST = 64 * 2**20
"""Bytes of one segment."""
ALIKE = 2**20
"""Bytes of segments that may be there before; the first steps of several environments are often the same."""
MOST_BUFFERS, MOST_COLUMNS, MOST_NUMBERS = 20, 1_000, 10_000
"""Of a run; columns of a buffer, and numbers in the shapes of all its columns."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_WRONG = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""What a list of segments that is none may raise."""


def pack(buffers: Mapping[str, Any], source: Path, folder: Path) -> None:
    """Write the segments that the state of some buffers refers to; those of a folder beside this one are linked."""
    known: dict[str, Path] = {}
    for beside in folder.parent.iterdir():
        with contextlib.suppress(OSError):  # it may be removed meanwhile
            known |= {path.name: path for path in beside.glob("steps-*.bin")}
    for name, state in buffers.items():
        contents = state.get("contents", {})
        if "segments" not in contents:  # the steps are in the state itself, or those of another run
            continue
        sizes = _sizes(contents)
        opened = {column: files.open_regular(source / name / f"{column}.bin") for column, size in sizes.items() if size}
        try:
            for (_, _, rows, sha), place in _listed(contents):
                target, start = folder / f"steps-{sha}.bin", place * contents["segment"]
                if target.exists() or _linked(known.get(target.name), target):
                    continue
                data = b"".join(
                    _part(file, start * sizes[column], rows * sizes[column]) for column, file in opened.items()
                )
                if hashlib.sha256(data).hexdigest() != sha:
                    raise DataError(str(source / name), f"segment {place} is not as it was saved", "see the disk")
                files.write_bytes(target, data, durable=False)
        finally:
            for file in opened.values():
                file.close()


def unpack(buffers: Mapping[str, Any], pieces: Path, folder: Path, tag: str) -> None:
    """Write the columns again from the pieces, one segment after the other, and change the state to that."""
    if len(buffers) > MOST_BUFFERS:
        raise DataError("stored steps", "there are too many buffers")
    for name, state in buffers.items():
        try:
            if "contents" not in state and "segments" in state:  # the steps of another run
                continue
            if not _NAME.fullmatch(name) or not all(map(_NAME.fullmatch, state["contents"]["columns"])):
                raise ValueError("its columns have no names")
            _unpack(state["contents"], pieces, folder / name, tag)
        except OSError as error:
            raise DataError("stored steps", f"cannot be put together: {error.strerror}") from None
        except _WRONG as error:
            raise DataError("stored steps", f"no list of segments: {str(error)[:80]}") from None


def _unpack(contents: State, pieces: Path, folder: Path, tag: str) -> None:
    columns, every = contents["columns"], list(range(len(contents["segments"])))
    numbers = [number for shape, _ in columns.values() for number in shape]
    many = len(columns) > MOST_COLUMNS or len(numbers) > MOST_NUMBERS
    if many or not all(type(number) is int and 0 <= number <= LARGEST for number in numbers):
        raise ValueError("its columns are too many or too large")
    sizes = _sizes(contents)
    contents["places"] = {"of": every, "held": {tag: every}}  # those of a stranger lie anywhere
    if contents["segment"] * sum(sizes.values()) > LARGEST:
        raise ValueError("few bytes would fill the disk")
    held = [(sha, rows) for (_, _, rows, sha), _ in _listed(contents)]  # before anything is written
    if not all(type(rows) is int and 0 < rows <= contents["segment"] for _, rows in held):
        raise ValueError("a segment has no possible number of rows")
    rows_of = dict(held)
    again = sum(rows for _, rows in held) - 2 * sum(rows_of.values())
    if len(set(held)) > len(rows_of) or again * sum(sizes.values()) > ALIKE:
        raise ValueError("few bytes would fill the disk")
    folder.mkdir(parents=True, mode=0o700)
    for column in sizes:
        files.write_bytes(folder / f"{column}.bin", b"", durable=False)
    for (_, _, rows, sha), place in _listed(contents):
        data = memoryview(files.read(pieces / f"steps-{sha}.bin", LARGEST, follow=False))
        if len(data) != rows * sum(sizes.values()) or rows > contents["segment"]:
            raise ValueError(f"{len(data)} bytes for {rows} rows")
        for column, size in sizes.items():
            with (folder / f"{column}.bin").open("r+b") as file:
                file.seek(place * contents["segment"] * size)
                file.write(data[: rows * size])
            data = data[rows * size :]


def _listed(contents: State) -> Iterator[tuple[list[Any], int]]:
    """The entries of all segments that hold steps, each with its place."""
    for entry, place in zip(contents["segments"], contents["places"]["of"], strict=True):
        if entry[2]:
            yield entry, place


def _sizes(contents: State) -> dict[str, int]:
    """Bytes of a slot by column."""
    return {
        name: math.prod(shape) * np.dtype(str(dtype)).itemsize for name, (shape, dtype) in contents["columns"].items()
    }


def _linked(path: Path | None, target: Path) -> bool:
    with contextlib.suppress(OSError):  # it may be removed meanwhile
        if path is not None:
            os.link(path, target)
            return True
    return False


def _part(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)
