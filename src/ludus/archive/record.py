"""A record: the facts about one run, read from its folder."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ludus.archive import checkpoint, history, rebuild, run_plugins
from ludus.archive.lock import RunLock
from ludus.archive.store import read_or_empty
from ludus.errors import LudusError
from ludus.metrics.names import EVAL_RETURN

TAGS = "tags.json"
MISSING: Final = object()
"""Stands for a config value that a run does not have."""
ALIASES = {"best": "reward", "return": "reward", "env": "environment", "algo": "algorithm", "steps": "env_steps",
           "time": "seconds", "git": "commit", "tag": "tags"}  # fmt: skip
_DAY = 86_400.0
_FRESH = 600.0
"""Seconds after which a run on another machine no longer counts as running."""


@dataclass(frozen=True)
class Record:
    """The facts about one run that lists, comparisons and exports show."""

    folder: Path
    id: str
    name: str = ""
    spec: str = ""
    algorithm: str | None = None
    environment: str | None = None
    seed: int | None = None
    state: str = "lost"
    """running, finished, stopped, failed, or lost: status.json says running but no process works on it."""
    reason: str | None = None
    """Why it ended."""
    started: str | None = None
    """UTC, ISO 8601."""
    updated: str | None = None
    seconds: float | None = None
    env_steps: int | None = None
    updates: int | None = None
    reward: float | None = None
    """Best evaluated mean return."""
    last: float | None = None
    """Last evaluated mean return."""
    threshold: float | None = None
    solved: bool | None = None
    exact: bool | None = None
    """Whether it can be resumed to the bit."""
    compiled: bool | None = None
    """Whether updates were compiled; they round differently from eager ones."""
    config_hash: str = ""
    commit: str | None = None
    plugins: str = ""
    """The plugins it was trained with, each file with the beginning of its sha256."""
    init_from: str = ""
    """The checkpoint of another run whose weights it began with."""
    tags: tuple[str, ...] = ()
    size: int = 0
    """Bytes in the folder."""
    host: str | None = None
    pid: int | None = None
    config: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)

    def get(self, key: str) -> object:
        """A field, or a config value by its dotted path (of a schedule its start), or MISSING."""
        key = ALIASES.get(key, key)
        if key in FIELDS:
            return getattr(self, key)
        value = value_at(self.config, key)
        return value["start"] if isinstance(value, Mapping) and value.keys() >= {"start", "schedule"} else value

    def values(self, keys: Iterable[str]) -> dict[str, object]:
        """Fields and config values by key; None where the run has none."""
        return {key: None if (value := self.get(key)) is MISSING else value for key in keys}

    def facts(self) -> dict[str, object]:
        """Every field as plain data, without the config."""
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in FIELDS}


FIELDS = tuple(part.name for part in fields(Record) if part.name not in ("folder", "config"))


def value_at(config: Mapping[str, object], path: str) -> object:
    """The value at a dotted path, or MISSING."""
    value: object = config
    for key in path.split("."):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return MISSING
    return value


def paths(config: Mapping[str, object], prefix: str = "") -> list[str]:
    """The dotted paths of a config's leaves; a schedule is a leaf."""
    found: list[str] = []
    for key, value in config.items():
        if isinstance(value, Mapping) and value and "schedule" not in value:
            found += paths(value, f"{prefix}{key}.")
        else:
            found.append(f"{prefix}{key}")
    return found


def read(folder: Path) -> Record | None:
    """Everything the folder says, as far as it can be read; None if it is not a run folder."""
    from ludus.config.read import plain, read_file  # imports yaml, which a listing from the index does not need

    try:
        config: Mapping[str, object] = plain(read_file(folder / "config.yaml"))
    except LudusError:
        if not (folder / "meta.json").is_file():
            return None
        config = {}
    meta, status, summary = rebuild.meta(folder), rebuild.status(folder), read_or_empty(folder / "metrics.json")
    config = trained(folder, config, meta)
    compiled, rung = status.get("compiled", summary.get("compiled")), summary.get("resume")
    thresholds = (summary.get("threshold"), status.get("threshold"), value_at(config, "environment.reward_threshold"))
    start = mapping(meta.get("start"))
    own, written = read_or_empty(folder / TAGS).get("tags"), mapping(config.get("experiment")).get("tags")
    tags = own if isinstance(own, list) else written
    record = Record(
        folder=folder,
        id=folder.name,
        name=str(meta.get("name") or ""),
        spec=str(meta.get("spec") or ""),
        algorithm=_text(mapping(config.get("algorithm")).get("name")),
        environment=_text(mapping(config.get("environment")).get("id")),
        seed=_whole(mapping(config.get("experiment")).get("seed")),
        state=_text(status.get("state")) or "lost",
        reason=_text(status.get("reason")),
        started=_text(meta.get("started") or status.get("started")),
        updated=_text(status.get("updated")),
        threshold=next((found for value in thresholds if (found := _number(value)) is not None), None),
        exact=None if rung is None else rung != "none",
        compiled=compiled if isinstance(compiled, bool) else None,
        config_hash=str(meta.get("config_hash") or ""),
        commit=_text(mapping(meta.get("git")).get("commit")),
        plugins=run_plugins.described(*run_plugins.parts(meta)),
        init_from="/".join(str(start[key]) for key in ("run", "step") if key in start),
        tags=tuple(map(str, tags)) if isinstance(tags, list) else (),
        size=size_of(folder),
        host=_text(mapping(meta.get("host")).get("name")),
        pid=_whole(status.get("pid")),
        config=config,
    )
    return _with_progress(record, status, summary)


def trained(folder: Path, config: Mapping[str, object], meta: Mapping[str, object]) -> Mapping[str, object]:
    """The config the run was trained with: config.yaml, or a checkpoint's copy if config.yaml was edited."""
    from ludus.config.read import digest

    if not config or not meta.get("config_hash") or digest(config) == meta["config_hash"]:
        return config
    return checkpoint.trained(checkpoint.about(folder)) or config


def _with_progress(record: Record, status: Mapping[str, object], summary: Mapping[str, object]) -> Record:
    """Adds counters and returns: from metrics.json once the run has ended, before that from metrics.jsonl."""
    if record.state in ("finished", "stopped") and summary:
        best, last, now = _number(summary.get("best")), _number(summary.get("mean")), summary
    else:
        _, returns = history.curve(record.folder, EVAL_RETURN)
        best, last = max(returns, default=None), returns[-1] if returns else None
        now = {**status, **history.last_row(record.folder)}
    return replace(
        record,
        reward=best,
        last=last,
        solved=None if record.threshold is None or last is None else last >= record.threshold,
        seconds=_number(now.get("seconds")),
        env_steps=_whole(now.get("env_steps")),
        updates=_whole(now.get("updates")),
    )


def signature(folder: Path) -> str:
    """Changes whenever a file that a record is read from does; needs only a few system calls."""
    watched = ("", "config.yaml", "status.json", "metrics.json", history.FILE, TAGS, "checkpoints", "videos", "buffers")
    found = []
    for name in watched:
        try:
            facts = os.lstat(f"{folder}/{name}")
        except OSError:
            found.append("-")
        else:
            found.append(f"{facts.st_mtime_ns}.{facts.st_size}")
    return " ".join(found)


def size_of(folder: Path) -> int:
    """Total bytes of all files below a folder; links are not followed."""
    total = 0
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with contextlib.suppress(OSError):  # a live run may remove files meanwhile
                facts = os.lstat(f"{parent}/{name}")
                total += 0 if stat.S_ISDIR(facts.st_mode) else facts.st_size
    return total


def present(record: Record) -> Record:
    """The record with its current state: a run that says it is running may be dead."""
    return replace(record, state="lost") if record.state == "running" and not works(record) else record


def works(record: Record) -> bool:
    """Whether a process works on a run that says it is running."""
    if record.host not in (None, socket.gethostname()):
        return _fresh(record.updated, _FRESH)
    if record.pid is None or not _alive(record.pid):
        return False
    return RunLock.is_held(record.folder) or not (record.folder / ".lock").exists()  # without a lock, trust the pid


def may_be_live(record: Record) -> bool:
    """Whether a process may still use the folder, here or on another machine that was active within a day."""
    if RunLock.is_held(record.folder):
        return True
    if record.host not in (None, socket.gethostname()):
        return record.state in ("running", "lost") and _fresh(record.updated, _DAY)
    return record.state == "running" and works(record)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's process
        return True
    return pid > 0


def moment(stamp: str | None) -> datetime | None:
    """The time of a stamp; None if it is not one."""
    try:
        then = datetime.fromisoformat(stamp or "")
    except ValueError:
        return None
    return then if then.tzinfo else then.replace(tzinfo=UTC)


def _fresh(stamp: str | None, seconds: float) -> bool:
    then = moment(stamp)
    return then is not None and (datetime.now(UTC) - then).total_seconds() < seconds


def mapping(value: object) -> Mapping[str, object]:
    """The value if it is a mapping, otherwise an empty one; foreign files may contain anything."""
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _number(value: object) -> float | None:
    found = history.number(value)
    return found if abs(found) < float("inf") else None


def _whole(value: object) -> int | None:
    found = _number(value)
    return None if found is None else int(found)
