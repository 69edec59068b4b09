"""Formats the fields of runs for tables: on the screen, in markdown and in LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from rich.filesize import decimal

from ludus.runs.query import shown
from ludus.runs.record import ALIASES, MISSING, Record
from ludus.text import clean, duration, points

DEFAULT = ("id", "state", "environment", "algorithm", "seed", "env_steps", "seconds", "reward", "last", "solved",
           "started", "size", "tags")  # fmt: skip
"""Columns of `ludus list`."""


def cell(record: Record, key: str) -> str:
    """A field of a run as text; a dash where it has none."""
    return text(key, record.get(key))


def text(key: str, value: object) -> str:
    """A value of the field `key` as text."""
    key = ALIASES.get(key, key)
    if value is None or value is MISSING or value == () or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and key in _FORMATS:
        return _FORMATS[key](value)
    if key == "started":
        return local_time(str(value))
    if key == "commit":
        return str(value)[:10]
    line = config_text(value)
    return line if line.isprintable() and len(line) <= 100 else clean(line, 100)


def config_text(value: object) -> str:
    """A config value on one line; a schedule reads `0.001 -> 0 linear`."""
    if isinstance(value, Mapping):
        if value.keys() >= {"start", "schedule"}:
            return f"{shown(value['start'])} -> {shown(value.get('end'))} {value['schedule']}"
        return "{" + ", ".join(f"{key}: {config_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(config_text(item) for item in value) + "]"
    return "null" if value is None else shown(value)


def is_number(key: str, value: object) -> bool:
    """Whether the column of this field is right-aligned."""
    return ALIASES.get(key, key) in NUMBERS or (isinstance(value, int | float) and not isinstance(value, bool))


def local_time(stamp: str) -> str:
    """A time stamp in local time: `2026-11-15 22:30`."""
    try:
        return f"{datetime.fromisoformat(stamp).astimezone():%Y-%m-%d %H:%M}"
    except ValueError:
        return clean(stamp, 40)


_FORMATS: dict[str, Callable[..., str]] = {
    "size": decimal, "seconds": duration, "reward": points, "last": points, "threshold": points,
    "env_steps": "{:,}".format, "updates": "{:,}".format, "seed": str, "pid": str,
}  # fmt: skip
NUMBERS = _FORMATS.keys()
"""Fields that are numbers."""
