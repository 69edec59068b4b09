"""What a run folder says where status.json or meta.json is gone, empty or cut: the rest of the folder knows as much."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ludus.errors import DataError
from ludus.runs import checkpoint, history
from ludus.runs.store import read_json

_ID = re.compile(r"(.+)_(\d{8}-\d{6})_[0-9a-f]+")


def status(folder: Path) -> dict[str, Any]:
    """status.json, or what metrics.json and the newest row say; a run of which nothing says how it ended is lost."""
    try:
        return read_json(folder / "status.json")
    except DataError:
        row, summary = history.last_row(folder), _summary(folder)
    ended = summary.get("state") if row and summary.get("env_steps") == row["env_steps"] else None
    reason = {"reason": summary.get("reason")} if ended else {}
    return {"state": ended or "lost", **reason, **{key: row[key] for key in ("env_steps", "updates") if key in row}}


def meta(folder: Path) -> dict[str, Any]:
    """meta.json, or the copy in the newest checkpoint, or what the folder's name says."""
    try:
        return read_json(folder / "meta.json")
    except DataError:
        copy = checkpoint.about(folder).get("meta")
        return dict(copy) if isinstance(copy, Mapping) else _by_name(folder.name)


def _summary(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / "metrics.json")
    except DataError:
        return {}


def _by_name(id: str) -> dict[str, Any]:
    match = _ID.fullmatch(id)
    if match is None:
        return {"name": id}
    try:
        started = datetime.strptime(match[2], "%Y%m%d-%H%M%S").astimezone(UTC)
    except ValueError:
        return {"name": match[1]}
    return {"name": match[1], "started": started.isoformat(timespec="seconds")}
