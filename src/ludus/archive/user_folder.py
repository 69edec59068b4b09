"""`$XDG_CONFIG_HOME/ludus`: what the user has set and agreed to, in files that nobody else may write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ludus import files
from ludus.errors import ConfigError


def home() -> Path | None:
    """The folder; None for a user without a home directory."""
    try:
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "ludus"
    except RuntimeError:
        return None


def own_file(name: str) -> Path | None:
    """A file of that folder, if it exists; one that other users may write is refused."""
    path = None if (folder := home()) is None else folder / name
    try:
        facts = None if path is None else path.stat()
    except OSError:
        facts = None
    if facts is None:
        return None
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise ConfigError(str(path), "may be written by others", f"chmod go-w {path}, or remove it")
    return path


def store(name: str, value: object) -> str:
    """Write a JSON file of that folder; returns why it could not be written, or ''."""
    folder = home()
    if folder is None:
        return "this user has no home directory"
    try:
        (folder / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_json(folder / name, value)
    except OSError as error:
        return error.strerror or str(error)
    return ""
