"""Writes of a buffer's files: parts of columns, and growth with reserved space."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ludus.errors import ResourceError
from ludus.types import Array


def as_bytes(array: Array) -> memoryview:
    """The bytes of an array in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def write_all(descriptor: int, array: Array, offset: int) -> None:
    """Write an array at `offset`, however many calls it takes."""
    view = as_bytes(array)
    while len(view):
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def grow(path: Path, size: int) -> None:
    """Make a file at least `size` bytes long, with the space reserved on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < size:
            os.posix_fallocate(descriptor, 0, size)  # a hole that cannot be filled later would kill the process
    except OSError as error:
        problem = f"{size / 2**30:.1f} GB cannot be had: {error.strerror}"
        raise ResourceError(str(path), problem, "lower the buffer's size, or free some space") from None
    finally:
        os.close(descriptor)
