"""Files that are either the old or the new one, never half of one: written beside the target, synced, renamed."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
TEMPORARY = ".tmp"


def beside(path: Path) -> Path:
    """A name no other writer has, in the same directory so that the rename stays atomic."""
    return path.with_name(f".{path.name[:200]}.{secrets.token_hex(6)}{TEMPORARY}")


def write_new(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Create a file; refuses to follow a link or to touch what is there."""
    descriptor = os.open(path, _NEW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace a file; `durable=False` skips the syncs where a power cut may lose the newest version."""
    temporary = beside(path)
    try:
        write_new(temporary, data, durable=durable)
        temporary.replace(path)
    except OSError:
        _discard(temporary)
        raise
    if durable:
        sync_folder(path.parent)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a text file; half characters, which JSON of somebody else may hold, are spelled out."""
    write_bytes(path, text.encode(errors="backslashreplace"), durable=durable)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Replace a JSON file; JSON has no NaN, so that is null."""
    write_text(path, json.dumps(_strict(value), indent=2, allow_nan=False) + "\n", durable=durable)


def replace_link(link: Path, target: str) -> None:
    """Point a symbolic link somewhere else in one step; parallel runs each win or lose as a whole."""
    temporary = beside(link)
    try:
        temporary.symlink_to(target)
        temporary.replace(link)
    except OSError:
        _discard(temporary)
        raise
    sync_folder(link.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a directory survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path, limit: int) -> bytes:
    """The bytes of a regular file; one larger than `limit`, a FIFO or a device is an OSError, and nothing blocks."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if facts.st_size > limit:
            raise OSError(errno.EFBIG, f"expected at most {limit} bytes, found {facts.st_size}", str(path))
        return file.read(facts.st_size + 1)


def sweep(folder: Path) -> None:
    """Remove what a killed writer left beside its targets; only for a folder nobody else writes to."""
    for path in folder.glob(f".*{TEMPORARY}"):
        _discard(path)


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
