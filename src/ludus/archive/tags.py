"""Tags of a run: in tags.json of its folder once they were changed, before that in its config."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ludus import files
from ludus.archive.record import TAGS, Record
from ludus.errors import ConfigError, of_system

_TAG = re.compile(r"[^\s,+\-][^\s,]{0,63}")


def check(label: str, where: str) -> None:
    """Refuse a tag that filters could not name or terminals could not print."""
    if not _TAG.fullmatch(label) or not label.isprintable():
        raise ConfigError(where, "cannot be a tag", "use up to 64 printable characters without space or comma")


def retag(record: Record, changes: Sequence[str]) -> tuple[str, ...]:
    """Apply `+label` (or `label`) and `-label` in order; returns the new tags."""
    tags = list(record.tags)
    for change in changes:
        remove, label = change.startswith("-"), change.lstrip("+-") if change[:1] in ("+", "-") else change
        check(label, change[:80])
        if remove and label not in tags:
            raise ConfigError(change, f"{record.id} has no such tag", f"it has {', '.join(tags) or 'none'}")
        tags = [tag for tag in tags if tag != label] + ([] if remove else [label])
    path = record.folder / TAGS
    try:
        files.write_json(path, {"tags": tags})
    except OSError as error:
        raise of_system(error, str(path)) from None
    return tuple(tags)
