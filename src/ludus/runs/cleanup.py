"""Makes room: removes checkpoints, videos and event files of runs nobody needs any more.

A plan comes first and touches nothing. What a run was and how it went (config, meta, status, metrics, log, report)
always stays. Links are never followed, and a run some process may be at work on is never touched.
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
from ludus.runs.record import Record, may_be_live, size_of

REMOVED = ("checkpoints", "videos", "tensorboard", "buffers")
"""Folders of a run that go; everything else stays."""
KEEP = "keep"
"""A run with this tag is never touched."""
_LEFT_OVER = ".removed-"
_CENTURY = 36_500
"""Days before which there were no runs, nor, much further back, any dates."""


@dataclass(frozen=True)
class Item:
    """One run of the plan."""

    record: Record
    keep: str
    """Why nothing of it goes; empty if something does."""
    folders: tuple[Path, ...] = ()
    """What goes."""
    size: int = 0
    """Bytes in them."""


def plan(
    records: Sequence[Record],
    among: Sequence[Record] | None = None,
    *,
    keep_best: int = 10,
    keep_recent: float = 30,
    now: datetime | None = None,
) -> list[Item]:
    """What would go from `among` (default: all): not the best of each environment, not what is younger than days."""
    best = _best(records, keep_best)
    since = (now or datetime.now(UTC)) - timedelta(days=min(keep_recent, _CENTURY))
    return [_item(record, best, since, keep_best, keep_recent) for record in (records if among is None else among)]


def apply(items: Sequence[Item]) -> tuple[int, list[str]]:
    """Remove what the plan says; bytes freed, and one line for each thing that had to stay."""
    freed, problems = 0, []
    for item in items:
        if not item.folders:
            continue
        lock = RunLock(item.record.folder)
        try:
            lock.acquire()  # a resumed run may have started since the plan was made
        except (LudusError, OSError) as error:
            problems.append(error.line() if isinstance(error, LudusError) else f"{item.record.id}: {error}")
            continue
        try:
            for folder in item.folders:
                freed += _remove(folder)
            for link in item.record.folder.glob("*.ckpt"):
                if link.is_symlink() and not link.exists():
                    link.unlink()
        except OSError as error:
            problems.append(f"{item.record.id}: {error.filename}: {error.strerror}")
        finally:
            lock.release()
    return freed, problems


def _item(record: Record, best: dict[str, int], since: datetime, keep_best: int, keep_recent: float) -> Item:
    if may_be_live(record):
        return Item(record, "is running")
    if KEEP in record.tags:
        return Item(record, f"is tagged {KEEP}")
    if record.id in best:
        return Item(record, f"number {best[record.id]} of the best {keep_best} on {record.environment}")
    if keep_recent and _touched(record) >= since:
        return Item(record, f"younger than {keep_recent:g} days")
    folders = tuple(path for path in _candidates(record.folder) if path.is_dir() and not path.is_symlink())
    if not folders:
        return Item(record, "has nothing to remove")
    return Item(record, "", folders, sum(size_of(path) for path in folders))


def _best(records: Sequence[Record], count: int) -> dict[str, int]:
    """Rank of the best runs of each environment, for returns of different ones cannot be compared."""
    ranks: dict[str, int] = {}
    found: dict[str | None, int] = {}
    for record in query.order([record for record in records if record.reward is not None], "reward:desc"):
        rank = found[record.environment] = found.get(record.environment, 0) + 1
        if rank <= count:
            ranks[record.id] = rank
    return ranks


def _touched(record: Record) -> datetime:
    """When it last began, went on or ended; a run that does not say is as young as its folder, and one that was
    updated before it began has seen the clock go back: how old it is nobody knows, so it counts as young."""
    began, updated = _moment(record.started), _moment(record.updated)
    if began is not None and updated is not None and updated < began:
        return datetime.now(UTC)
    return updated or began or datetime.fromtimestamp(record.folder.stat().st_mtime, UTC)


def _moment(stamp: str | None) -> datetime | None:
    try:
        then = datetime.fromisoformat(stamp or "")
    except ValueError:
        return None
    return then if then.tzinfo else then.replace(tzinfo=UTC)


def _candidates(folder: Path) -> list[Path]:
    """What may go, and what a cleanup that was killed left behind."""
    left = [path for path in folder.iterdir() if path.name.startswith(_LEFT_OVER)]
    return [*(folder / name for name in REMOVED), *left]


def _remove(folder: Path) -> int:
    """Out of sight in one step, so that a kill leaves no half of a checkpoint; then file by file."""
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
