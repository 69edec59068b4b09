"""Metrics of a run that goes back to a checkpoint: later rows are set aside, not lost."""

from __future__ import annotations

import os
from pathlib import Path

from ludus import files
from ludus.errors import ResourceError
from ludus.metrics.sinks.csv import Csv
from ludus.metrics.sinks.jsonl import encode, read_rows

SUPERSEDED = "metrics.superseded.jsonl"


def rewind_metrics(folder: Path, epoch: int) -> int:
    """Keep the rows up to `epoch`; the others move to metrics.superseded.jsonl. Returns how many moved."""
    try:
        return _rewind(folder, epoch)
    except OSError as error:
        raise ResourceError(str(folder), f"cannot set rows aside: {error.strerror}", "free some space") from None


def _rewind(folder: Path, epoch: int) -> int:
    path = folder / "metrics.jsonl"
    rows = list(read_rows(path)) if path.exists() else []
    kept = [row for row in rows if float(row.get("epoch", 0)) <= epoch]
    moved = [row for row in rows if float(row.get("epoch", 0)) > epoch]
    if moved:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(folder / SUPERSEDED, flags, 0o600), "ab") as file:
            file.write(b"".join(encode(row) for row in moved))
            file.flush()
            os.fsync(file.fileno())
        files.write_bytes(path, b"".join(encode(row) for row in kept))
    table = folder / "metrics.csv"
    if table.exists():
        beside = files.beside(table)
        csv = Csv(beside)
        for row in kept:
            csv.write(row)
        csv.close()
        beside.replace(table) if kept else table.unlink()
    return len(moved)
