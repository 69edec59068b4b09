"""Safe files: a write leaves the old file or the new one, never half of one; a read neither blocks nor fills memory."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
TEMPORARY = ".tmp"


def beside(path: Path) -> Path:
    """An unused temporary name in the same directory, so that the rename is atomic."""
    return path.with_name(f".{path.name[:200]}.{secrets.token_hex(6)}{TEMPORARY}")


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends without an OSError.

    `durable=False` skips the syncs: after a power cut the file may be the old one.
    """
    temporary = beside(path)
    with _discarding(temporary):
        with os.fdopen(os.open(temporary, _NEW, 0o600), "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    if durable:
        sync(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Create a file; an existing file or link is an error."""
    with os.fdopen(os.open(path, _NEW, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace a file."""
    with replacing(path, durable=durable) as file:
        file.write(data)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a text file; lone surrogates, which foreign JSON may contain, are escaped."""
    write_bytes(path, text.encode(errors="backslashreplace"), durable=durable)


def write_json(path: Path, value: object) -> None:
    """Replace a JSON file; NaN and infinity become null."""
    write_text(path, to_json(value))


def to_json(value: object) -> str:
    """Indented JSON; NaN and infinity become null."""
    return json.dumps(_strict(value), indent=2, allow_nan=False) + "\n"


def replace_link(link: Path, target: str, *, room: Path | None = None) -> None:
    """Point a symbolic link to another target in one step; it is made in `room`, or beside the link."""
    temporary = (room or link.parent) / beside(link).name
    with _discarding(temporary):
        temporary.symlink_to(target)
        temporary.replace(link)
    sync(link.parent)


def sync(path: Path) -> None:
    """Make the content of a file, or the renames in a directory, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path: Path, *, follow: bool = True) -> BufferedReader:
    """Open a regular file for reading; a FIFO or a device is an OSError, and so is a link unless `follow`."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is not a regular file", str(path))


def read(path: Path, limit: int, *, follow: bool = True) -> bytes:
    """The bytes of a regular file; more than `limit` of them are an OSError (EFBIG)."""
    with open_regular(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"is larger than {_shown(limit)}", str(path))
        return file.read(size + 1)


def sha256(path: Path) -> str:
    """The sum of a regular file's bytes."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reason(error: OSError) -> str:
    """Why the system refused, as the second half of a sentence."""
    text = error.strerror or "cannot be opened"
    return text[0].lower() + text[1:]


def sweep(folder: Path) -> None:
    """Remove temporary files of a killed process; only for a folder that no other process writes to."""
    for path in folder.glob(f".*{TEMPORARY}"):
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def _discarding(path: Path) -> Iterator[None]:
    """Remove the temporary file at `path` when writing fails."""
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def _shown(size: int) -> str:
    unit, name = next(((unit, name) for unit, name in ((2**20, "MB"), (2**10, "kB")) if size % unit == 0), (1, "bytes"))
    return f"{size // unit} {name}"


def _strict(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
