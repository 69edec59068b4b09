"""The key of this user on this machine, under which pickled environments are sealed."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from ludus import files
from ludus.errors import DataError

VARIABLE = "LUDUS_KEY_FILE"
SIZE = 32


def load() -> bytes:
    """The key, made on first use; DataError if other users can read it."""
    path = location()
    try:
        return _read(path)
    except FileNotFoundError:
        _create(path)
        return _read(path)


def location() -> Path:
    """`$LUDUS_KEY_FILE`, else a file in the user's state directory."""
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise DataError(VARIABLE, "this user has no home directory for a key", f"set {VARIABLE}") from error
    return Path(state) / "ludus" / "snapshot.key"


def _read(path: Path) -> bytes:
    try:
        file = files.open_regular(path, follow=False)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DataError(str(path), f"the key cannot be read: {error.strerror}", f"set {VARIABLE}") from error
    with file:
        facts = os.fstat(file.fileno())
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            raise DataError(str(path), "is not a key file of this user alone", "chmod 600, or remove it for a new one")
        key = file.read(SIZE + 1)
    if len(key) != SIZE:
        raise DataError(str(path), f"holds no key of {SIZE} bytes", "remove it for a new one")
    return key


def _create(path: Path) -> None:
    """Create the file in one step: several workers may do it at the same time."""
    temporary = files.beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_new(temporary, secrets.token_bytes(SIZE))
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        finally:
            temporary.unlink()
    except OSError as error:
        raise DataError(str(path), f"no key can be written: {error.strerror}", f"set {VARIABLE}") from error
