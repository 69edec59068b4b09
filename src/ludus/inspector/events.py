"""Server-sent events: which runs changed, and the newest rows of those that a page watches."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from ludus.archive.history import FILE
from ludus.archive.store import runs_in
from ludus.files import open_regular
from ludus.inspector.strict import strict_json
from ludus.metrics.sinks.jsonl import parse_row

PAUSE = 0.25
EVERY = 4
"""Pauses from one look at all runs to the next."""
BEAT = 15.0
"""Seconds after which something is sent anyway, so that a closed page is noticed."""
MOST_ROWS = 200
_MOST_BYTES = 1 << 20


class Tail:
    """What was added to a file since the last look; a line that is not finished waits."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = self._end()

    def _end(self) -> int:
        """Where the last whole line ends."""
        try:
            with open_regular(self.path, follow=False) as file:
                size = os.fstat(file.fileno()).st_size
                start = max(size - _MOST_BYTES, 0)
                file.seek(start)
                return start + file.read(size - start).rfind(b"\n") + 1
        except OSError:
            return 0

    def rows(self) -> list[dict[str, Any]]:
        """New rows; after a file was cut, those from its beginning."""
        try:
            with open_regular(self.path, follow=False) as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._at:
                    self._at = 0
                file.seek(self._at)
                data = file.read(min(size - self._at, _MOST_BYTES))
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return [row for line in whole.splitlines() if (row := parse_row(line)) is not None]


async def stream(root: Path, watched: Sequence[str], over: Callable[[], bool]) -> AsyncIterator[str]:
    """Events for as long as the page listens and the server is not `over`."""
    tails = {run: Tail(root / run / FILE) for run in watched}
    known, silent = await asyncio.to_thread(_stamps, root), 0.0
    yield _event("hello", {"watched": list(tails)})
    for look in itertools.count(1):
        await asyncio.sleep(PAUSE)
        if over():
            return
        silent += PAUSE
        for run, tail in tails.items():
            if rows := await asyncio.to_thread(tail.rows):
                yield _event("rows", {"run": run, "count": len(rows), "rows": rows[-MOST_ROWS:]})
                silent = 0.0
        now = known if look % EVERY else await asyncio.to_thread(_stamps, root)
        changed = [run for run in {**known, **now} if known.get(run) != now.get(run)]
        if changed:
            yield _event("changed", {"runs": changed})
            silent = 0.0
        known = now
        if silent >= BEAT:
            yield ": still here\n\n"
            silent = 0.0


def _stamps(root: Path) -> dict[str, tuple[float, ...]]:
    found = {}
    for name in runs_in(root):
        parts = []
        for file in ("status.json", "checkpoints"):
            try:
                parts.append(os.lstat(f"{root}/{name}/{file}").st_mtime)
            except OSError:
                parts.append(0.0)
        found[name] = tuple(parts)
    return found


def _event(kind: str, data: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {strict_json(data)}\n\n"
