"""Replaces status.json and meta.json where they are missing or damaged by what the rest of the folder says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ludus.archive import checkpoint, history
from ludus.archive.store import read_json, read_or_empty
from ludus.errors import DataError

_ID = re.compile(r"(.+)_(\d{8}-\d{6})_[0-9a-f]+")


def status(folder: Path) -> dict[str, object]:
    """status.json, or what metrics.json and the newest row say; `lost` if nothing says how the run ended."""
    try:
        return read_json(folder / "status.json")
    except DataError:
        row, summary = history.last_row(folder), read_or_empty(folder / "metrics.json")
    ended = summary.get("state") if row and summary.get("env_steps") == row["env_steps"] else None
    reason = {"reason": summary.get("reason")} if ended else {}
    return {"state": ended or "lost", **reason, **{key: row[key] for key in ("env_steps", "updates") if key in row}}


def meta(folder: Path) -> dict[str, object]:
    """meta.json, or its copy in the newest checkpoint, or what the folder's name says."""
    try:
        return read_json(folder / "meta.json")
    except DataError:
        copy = checkpoint.about(folder).get("meta")
    if isinstance(copy, Mapping):
        return dict(copy)
    match = _ID.fullmatch(folder.name)
    if match is None:
        return {"name": folder.name}
    try:
        started = datetime.strptime(match[2], "%Y%m%d-%H%M%S").astimezone(UTC)
    except ValueError:
        return {"name": match[1]}
    return {"name": match[1], "started": started.isoformat(timespec="seconds")}
