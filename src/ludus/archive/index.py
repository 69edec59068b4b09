"""runs/index.sqlite: a cache of the records of all runs, so that `ludus list` need not read every folder.

A missing, old or corrupt index is rebuilt from the folders; without write access it lives in memory.
Several processes may use it at the same time.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from ludus.archive import query
from ludus.archive.record import Record, present, read, signature
from ludus.archive.store import ROOT, RunFolder, runs_in
from ludus.errors import ConfigError, DataError

NAME = "index.sqlite"
VERSION = 4
"""Version of the table; a table of another version is rebuilt."""
_UNAVAILABLE = {
    getattr(sqlite3, f"SQLITE_{name}") for name in ("PERM", "BUSY", "LOCKED", "READONLY", "FULL", "CANTOPEN")
}


class Index:
    """The runs of a folder: list, find and pick them."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = Path(root)
        self.path = self.root / NAME
        self.unread = 0
        """Runs that the last `records` had no patience to read."""

    def records(self, patience: float = math.inf) -> list[Record]:
        """Every run as its folder is now, the newest first; after so many seconds without those not read yet."""
        if not self.root.is_dir():
            return []
        until = time.monotonic() + patience
        try:
            found = self._synced(self.path, until)
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            found = self._synced(self._mended(error), until)
        return sorted(map(present, found), key=lambda record: (record.started or "", record.id), reverse=True)

    def find(self, *filters: str, **values: object) -> list[Record]:
        """The runs that fulfil `"reward>400"` and `algorithm="ppo"`; for config paths `**{"algorithm.lr": 0.001}`."""
        wanted = [query.parse(text) for text in filters]
        wanted += [query.Filter(key, "=", query.shown(value)) for key, value in values.items()]
        return query.select(self.records(), wanted)

    def pick(self, words: Sequence[str]) -> list[Record]:
        """The runs that references (id, prefix, `@last`, `@best`) and globs name (default: all), filtered."""
        records = self.records()
        names = [word for word in words if not query.is_filter(word)]
        chosen = [record for word in names for record in self._named(word, records)] if names else records
        unique = list({record.id: record for record in chosen}.values())
        return query.select(unique, [query.parse(word) for word in words if query.is_filter(word)])

    def get(self, reference: str) -> Record:
        """The one run of a reference."""
        return self._named(reference, self.records())[0]

    def rebuild(self) -> int:
        """Read every folder again; returns the number of runs."""
        self.discard()
        return len(self.records())

    def discard(self) -> None:
        """Remove the file; of a link only the link itself."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            self.path.with_name(NAME + suffix).unlink(missing_ok=True)

    def _mended(self, error: Exception) -> Path | None:
        """Where to put the index after an error: in memory if the file is unavailable, otherwise in a new file."""
        if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _UNAVAILABLE:
            return None
        try:
            self.discard()
        except OSError:
            return None
        return self.path

    def _named(self, word: str, records: Sequence[Record]) -> list[Record]:
        name = word.removeprefix(f"{self.root}/").rstrip("/")
        if name == "@best":
            best = query.order([record for record in records if record.reward is not None], "reward")
            if not best:
                raise ConfigError(word, f"no run in {self.root}/ was evaluated", "train one first")
            return best[:1]
        if any(sign in name for sign in "*?["):
            found = [record for record in records if fnmatchcase(record.id, name)]
            if not found:
                raise ConfigError(word, f"fits no run in {self.root}/", "ludus list shows them")
            return found
        folder = RunFolder.load(self.root, word).path
        found = [record for record in records if record.id == folder.name]
        if not found:
            raise DataError(str(folder), "neither its config.yaml nor its meta.json can be read", "restore one of them")
        return found

    def _synced(self, path: Path | None, until: float) -> list[Record]:
        with self._open(path) as base:
            known = dict(base.execute("SELECT id, signature FROM runs"))
            now = {name: signature(self.root / name) for name in runs_in(self.root)}
            changed = [name for name, sign in now.items() if known.get(name) != sign]
            fresh, self.unread = [], len(changed)
            for name in itertools.takewhile(lambda _: time.monotonic() < until, changed):
                self.unread -= 1
                if (record := read(self.root / name)) is not None:
                    fresh.append((now[name], record))
            gone = [name for name in known if name not in now]
            if fresh or gone:
                base.execute("BEGIN IMMEDIATE")
                added = [
                    (record.id, sign, json.dumps(record.facts() | {"config": record.config})) for sign, record in fresh
                ]
                base.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", added)
                base.executemany("DELETE FROM runs WHERE id = ?", [(name,) for name in gone])
                base.execute("COMMIT")
            stored = [json.loads(text) for (text,) in base.execute("SELECT record FROM runs")]
            return [Record(self.root / facts["id"], **facts | {"tags": tuple(facts["tags"])}) for facts in stored]

    @contextmanager
    def _open(self, path: Path | None) -> Iterator[sqlite3.Connection]:
        if path is not None and path.is_symlink():
            path.unlink()
        if path is not None:
            with suppress(OSError):  # sqlite itself would make the file readable for others
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(path or ":memory:", timeout=10, isolation_level=None)) as base:
            base.execute("PRAGMA journal_mode=WAL")
            base.execute("PRAGMA synchronous=NORMAL")
            if not _current(base):
                base.execute("BEGIN IMMEDIATE")
                if not _current(base):  # another process may just have created it
                    base.execute("DROP TABLE IF EXISTS runs")
                    base.execute("CREATE TABLE runs (id TEXT PRIMARY KEY, signature TEXT, record TEXT) WITHOUT ROWID")
                    base.execute(f"PRAGMA user_version={VERSION}")
                base.execute("COMMIT")
            yield base


def _current(base: sqlite3.Connection) -> bool:
    return bool(base.execute("PRAGMA user_version").fetchone() == (VERSION,))
