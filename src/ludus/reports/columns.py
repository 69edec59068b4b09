"""How fields of runs read in tables: on the screen, in markdown and in LaTeX."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ludus.runs.query import shown
from ludus.runs.record import ALIASES, MISSING, Record
from ludus.text import clean, duration, points

DEFAULT = (
    "id",
    "state",
    "environment",
    "algorithm",
    "seed",
    "env_steps",
    "seconds",
    "reward",
    "last",
    "solved",
    "started",
    "size",
    "tags",
)
NUMBERS = {"seed", "env_steps", "updates", "seconds", "reward", "last", "threshold", "size", "pid"}
_RETURNS = {"reward", "last", "threshold"}
_COUNTS = {"env_steps", "updates"}


def cell(record: Record, key: str) -> str:
    """One value as people read it; a dash where there is none."""
    return text(key, record.get(key))


def text(key: str, value: Any) -> str:
    """A value of some field as people read it."""
    key = ALIASES.get(key, key)
    if value is None or value is MISSING or value == () or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key in NUMBERS and isinstance(value, int | float):
        return _number(key, value)
    if key == "started":
        return local_time(str(value))
    if key == "commit":
        return str(value)[:10]
    line = config_text(value)
    return line if line.isprintable() and len(line) <= 100 else clean(line, 100)


def config_text(value: Any) -> str:
    """A value of a config on one line; a schedule reads `0.001 -> 0 linear`."""
    if isinstance(value, Mapping):
        if value.keys() >= {"start", "schedule"}:
            return f"{shown(value['start'])} -> {shown(value.get('end'))} {value['schedule']}"
        return "{" + ", ".join(f"{key}: {config_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(config_text(item) for item in value) + "]" if isinstance(value, list) else shown(value)
    return "null" if value is None else shown(value)


def is_number(key: str, value: Any) -> bool:
    """Whether a column of it is set flush right."""
    return ALIASES.get(key, key) in NUMBERS or (isinstance(value, int | float) and not isinstance(value, bool))


def size(count: float) -> str:
    """`812 B`, `5.2 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def local_time(stamp: str) -> str:
    """`2026-11-15 22:30` on the clock of whoever reads it."""
    try:
        return f"{datetime.fromisoformat(stamp).astimezone():%Y-%m-%d %H:%M}"
    except ValueError:
        return clean(stamp, 40)


def dump(value: Any) -> str:
    """Values as JSON; what it cannot say becomes null."""
    return json.dumps(_plain(value), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    nothing = value is MISSING or (isinstance(value, float) and not math.isfinite(value))
    return None if nothing else value


def _number(key: str, value: float) -> str:
    if key == "size":
        return size(value)
    if key == "seconds":
        return duration(value)
    if key in _RETURNS:
        return points(value)
    return f"{value:,}" if key in _COUNTS else str(value)
