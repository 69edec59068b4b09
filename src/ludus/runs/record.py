"""What is known about one run, read from its folder; the folder is the truth, a record only what it said."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ludus.errors import LudusError
from ludus.metrics.names import EVAL_RETURN
from ludus.runs import checkpoint, history, rebuild
from ludus.runs.lock import RunLock
from ludus.runs.store import read_json

TAGS = "tags.json"
MISSING: Any = object()
ALIASES = {
    "best": "reward",
    "return": "reward",
    "env": "environment",
    "algo": "algorithm",
    "steps": "env_steps",
    "time": "seconds",
    "git": "commit",
    "tag": "tags",
}
_DAY = 86_400.0
_FRESH = 600.0
"""Seconds for which another machine's word that it is running counts."""


@dataclass(frozen=True)
class Record:
    """One run as lists, comparisons and exports see it."""

    folder: Path
    id: str
    name: str = ""
    spec: str = ""
    algorithm: str | None = None
    environment: str | None = None
    seed: int | None = None
    state: str = "lost"
    """running, finished, stopped, failed, or lost: it says running but no process is at work."""
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
    """Whether updates ran compiled: they round otherwise than eager ones."""
    config_hash: str = ""
    commit: str | None = None
    tags: tuple[str, ...] = ()
    size: int = 0
    """Bytes in the folder."""
    host: str | None = None
    pid: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def get(self, key: str) -> Any:
        """A field, or a config value by its dotted path (a schedule counts as its start); MISSING if there is none."""
        key = ALIASES.get(key, key)
        if key in FIELDS:
            return getattr(self, key)
        return dotted(self.config, key)

    def facts(self) -> dict[str, Any]:
        """Every field as plain data, without the config."""
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in FIELDS}


FIELDS = tuple(part.name for part in fields(Record) if part.name not in ("folder", "config"))


def dotted(config: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, or MISSING."""
    value: Any = config
    for key in path.split("."):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return MISSING
    return value["start"] if isinstance(value, Mapping) and value.keys() >= {"start", "schedule"} else value


def paths(config: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The dotted paths of a config's leaves; a schedule is one."""
    found: list[str] = []
    for key, value in config.items():
        inner = isinstance(value, Mapping) and value and "schedule" not in value
        found += paths(value, f"{prefix}{key}.") if inner else [f"{prefix}{key}"]
    return found


def read(folder: Path) -> Record | None:
    """Everything the folder says, as far as it can be read; None if it is not the folder of a run."""
    from ludus.config.read import plain, read_file  # imports yaml, which an index that is up to date does not need

    try:
        config = plain(read_file(folder / "config.yaml"))
    except LudusError:
        if not (folder / "meta.json").is_file():
            return None
        config = {}
    meta, status, summary = rebuild.meta(folder), rebuild.status(folder), _read(folder / "metrics.json")
    config = trained(folder, config, meta)
    experiment = mapping(config.get("experiment"))
    return Record(
        folder=folder,
        id=folder.name,
        name=str(meta.get("name") or ""),
        spec=str(meta.get("spec") or ""),
        algorithm=_text(mapping(config.get("algorithm")).get("name")),
        environment=_text(mapping(config.get("environment")).get("id")),
        seed=_whole(experiment.get("seed")),
        state=_text(status.get("state")) or "lost",
        reason=_text(status.get("reason")),
        started=_text(meta.get("started") or status.get("started")),
        updated=_text(status.get("updated")),
        config_hash=str(meta.get("config_hash") or ""),
        commit=_text(mapping(meta.get("git")).get("commit")),
        tags=read_tags(folder, config),
        size=size_of(folder),
        host=_text(mapping(meta.get("host")).get("name")),
        pid=_whole(status.get("pid")),
        config=config,
        **_progress(folder, config, status, summary),
    )


def trained(folder: Path, config: Mapping[str, Any], meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config the run was trained with: config.yaml, unless that was edited and a checkpoint knows better."""
    from ludus.config.read import digest

    if not config or not meta.get("config_hash") or digest(config) == meta["config_hash"]:
        return config
    return checkpoint.trained(checkpoint.about(folder)) or config


def _progress(folder: Path, config: Mapping[str, Any], status: Mapping[str, Any], summary: Any) -> dict[str, Any]:
    """How far and how well; metrics.json counts only once the run has ended, for a resumed run has an old one."""
    rung = summary.get("resume")
    known = (summary, status, {"threshold": mapping(config.get("environment")).get("reward_threshold")})
    threshold = next((value for facts in known if (value := _number(facts.get("threshold"))) is not None), None)
    compiled = status.get("compiled", summary.get("compiled"))
    common = {
        "threshold": threshold,
        "exact": None if rung is None else rung != "none",
        "compiled": compiled if isinstance(compiled, bool) else None,
    }
    if status.get("state") in ("finished", "stopped") and summary:
        best, last, now = _number(summary.get("best")), _number(summary.get("mean")), summary
    else:
        _, returns = history.curve(folder, EVAL_RETURN)
        best, last = max(returns, default=None), returns[-1] if returns else None
        now = {**status, **history.last_row(folder)}
    return {
        **common,
        "reward": best,
        "last": last,
        "solved": None if threshold is None or last is None else last >= threshold,
        "seconds": _number(now.get("seconds")),
        "env_steps": _whole(now.get("env_steps")),
        "updates": _whole(now.get("updates")),
    }


def signature(folder: Path) -> str:
    """Changes whenever a file a record is made of does; costs a few calls of the system."""
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
    """Bytes of all files below a folder; links are not followed."""
    total, queue = 0, [os.fspath(folder)]
    while queue:
        try:
            with os.scandir(queue.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:  # a live run removes what is listed
            continue
    return total


def read_tags(folder: Path, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The run's labels: those of `ludus tag`, or else of its config."""
    told = _read(folder / TAGS).get("tags")
    tags = mapping(config.get("experiment")).get("tags") if not isinstance(told, list) else told
    return tuple(str(tag) for tag in tags) if isinstance(tags, list) else ()


def present(record: Record) -> Record:
    """The record with the state of this moment: a run that says it is running may be long dead."""
    if record.state == "running" and not works(record):
        return replace(record, state="lost")
    return record


def works(record: Record) -> bool:
    """Whether a process is at work on a run that says it is running."""
    if record.host not in (None, socket.gethostname()):
        return _age(record.updated) < _FRESH
    if record.pid is None or not _alive(record.pid):
        return False
    lock = record.folder / ".lock"
    return RunLock.is_held(record.folder) if lock.exists() else True  # else the number may be another process's by now


def may_be_live(record: Record) -> bool:
    """Whether touching the folder could hurt a process, here or on another machine that was heard of today."""
    if RunLock.is_held(record.folder):
        return True
    if record.host not in (None, socket.gethostname()):
        return record.state in ("running", "lost") and _age(record.updated) < _DAY
    return record.state == "running" and works(record)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # not ours, but there
        return True
    return pid > 0


def _age(stamp: str | None) -> float:
    try:
        then = datetime.fromisoformat(stamp or "")
    except ValueError:
        return float("inf")
    return (datetime.now(UTC) - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except LudusError:
        return {}


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is one; files of other people hold anything."""
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> float | None:
    found = history.number(value)
    return found if abs(found) < float("inf") else None


def _whole(value: Any) -> int | None:
    found = _number(value)
    return None if found is None else int(found)
