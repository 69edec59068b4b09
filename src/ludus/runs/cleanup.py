"""Removes checkpoints, videos and event files of old runs.

A plan comes first and changes nothing. Config, meta, status, metrics, log and report always stay. Links are never
followed, and a run that a process may be working on is never touched.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ludus import files
from ludus.errors import LudusError
from ludus.runs import query
from ludus.runs.lock import RunLock
from ludus.runs.record import Record, may_be_live, moment, size_of

REMOVED = ("checkpoints", "videos", "tensorboard", "buffers")
"""Folders of a run that are removed; everything else stays."""
KEEP = "keep"
"""A run with this tag is never touched."""
_LEFT_OVER = ".removed-"
_CENTURY = 36_500
"""Largest age in days; much larger ones are before the first date."""


@dataclass(frozen=True)
class CleanupItem:
    """One run of the plan."""

    record: Record
    keep: str
    """Why the run is kept as it is; empty if something is removed."""
    folders: tuple[Path, ...] = ()
    """The folders to remove, and below their bytes."""
    size: int = 0


def plan(
    records: Sequence[Record], among: Sequence[Record] | None = None, *, keep_best: int = 10, keep_recent: float = 30
) -> list[CleanupItem]:
    """What to remove from the runs of `among` (default: all), except the best of each environment and recent ones."""
    best = _best(records, keep_best)
    since = datetime.now(UTC) - timedelta(days=min(keep_recent, _CENTURY))
    return [_item(record, best, since, keep_best, keep_recent) for record in (records if among is None else among)]


def apply(items: Sequence[CleanupItem]) -> tuple[int, list[str]]:
    """Carry out a plan; returns the bytes freed, and one line for each run that could not be cleaned."""
    freed, problems = 0, []
    for item in items:
        if not item.folders:
            continue
        lock = RunLock(item.record.folder)
        try:
            lock.acquire()  # the run may have been resumed since the plan was made
            for folder in item.folders:
                freed += _remove(folder)
            for link in item.record.folder.glob("*.ckpt"):
                if link.is_symlink() and not link.exists():
                    link.unlink()
        except LudusError as error:
            problems.append(error.line())
        except OSError as error:
            problems.append(f"{item.record.id}: {error.filename}: {error.strerror}")
        finally:
            lock.release()
    return freed, problems


def _item(record: Record, best: dict[str, int], since: datetime, keep_best: int, keep_recent: float) -> CleanupItem:
    if may_be_live(record):
        return CleanupItem(record, "is running")
    if KEEP in record.tags:
        return CleanupItem(record, f"is tagged {KEEP}")
    if record.id in best:
        return CleanupItem(record, f"number {best[record.id]} of the best {keep_best} on {record.environment}")
    if keep_recent and _touched(record) >= since:
        return CleanupItem(record, f"younger than {keep_recent:g} days")
    left = [path for path in record.folder.iterdir() if path.name.startswith(_LEFT_OVER)]  # by a killed cleanup
    found = [*(record.folder / name for name in REMOVED), *left]
    folders = tuple(path for path in found if path.is_dir() and not path.is_symlink())
    if not folders:
        return CleanupItem(record, "has nothing to remove")
    return CleanupItem(record, "", folders, sum(size_of(path) for path in folders))


def _best(records: Sequence[Record], count: int) -> dict[str, int]:
    """Rank of the best runs of each environment; returns of different environments cannot be compared."""
    ranks: dict[str, int] = {}
    found: dict[str | None, int] = {}
    for record in query.order([record for record in records if record.reward is not None], "reward:desc"):
        rank = found[record.environment] = found.get(record.environment, 0) + 1
        if rank <= count:
            ranks[record.id] = rank
    return ranks


def _touched(record: Record) -> datetime:
    """The time of the last update; without one, that of the folder. A run that was updated before it started has
    seen the clock go back: its age is unknown, so it counts as new."""
    began, updated = moment(record.started), moment(record.updated)
    if began is not None and updated is not None and updated < began:
        return datetime.now(UTC)
    return updated or began or datetime.fromtimestamp(record.folder.stat().st_mtime, UTC)


def _remove(folder: Path) -> int:
    """Rename the folder in one step, so that a kill leaves no half of a checkpoint, then delete it."""
    if folder.is_symlink() or not folder.is_dir():
        return 0
    size = size_of(folder)
    aside = folder
    if not folder.name.startswith(_LEFT_OVER):
        aside = folder.with_name(f"{_LEFT_OVER}{folder.name}-{secrets.token_hex(4)}")
        folder.rename(aside)
        files.sync(folder.parent)
    shutil.rmtree(aside)
    return size
