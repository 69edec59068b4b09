"""The config of a run as the page shows it: every value with where it came from, and what is unusual about the run."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ludus.archive.differences import changes
from ludus.archive.record import Record, paths, value_at
from ludus.archive.store import read_or_empty
from ludus.config.compose import load, search_path
from ludus.config.read import digest
from ludus.errors import LudusError
from ludus.reports.columns import config_text
from ludus.reports.report import watch

_SHIPPED = re.compile(r"[A-Za-z0-9_./-]+:[a-z0-9_]+|\+experiment=[\w-]+")
_ONE = threading.Lock()
"""Of several pages that ask for one config at once, the first has it composed, the others wait."""
_FILE = re.compile(r"\.(ya?ml|json)\b", re.IGNORECASE)


def settings(record: Record) -> dict[str, Any]:
    """Values by path, with their origin and the default where they differ from it."""
    defaults = {change.path: config_text(change.before) for change in changes(record.config)}
    origins = _origins(record)
    rows = [
        {
            "path": path,
            "value": config_text(value_at(record.config, path)),
            "default": defaults.get(path),
            "origin": _origin(path, origins) or ("default" if path not in defaults else "config.yaml"),
        }
        for path in paths(record.config)
    ]
    meta = read_or_empty(record.folder / "meta.json")
    return {"spec": record.spec, "overrides": meta.get("overrides"), "rows": rows, "argv": meta.get("argv")}


def alerts(record: Record) -> list[dict[str, Any]]:
    """What the monitor has to say about the run."""
    return [asdict(alert) | {"line": alert.line()} for alert in watch(record)[0]]


def _origins(record: Record) -> dict[str, str]:
    """`file:line` or override of each value, if the spec still gives this config; none for a spec that names a file."""
    overrides = read_or_empty(record.folder / "meta.json").get("overrides")
    given = [str(one) for one in overrides] if isinstance(overrides, list) else []
    if not _SHIPPED.fullmatch(record.spec) or any(_FILE.search(text) for text in (record.spec, *given)):
        return {}
    with _ONE:
        return _traced(record.spec, tuple(given), record.config_hash)


@functools.lru_cache(maxsize=64)
def _traced(spec: str, overrides: tuple[str, ...], config_hash: str) -> dict[str, str]:
    """The origins of a config, which takes a second to compose."""
    try:
        resolved = load(spec, list(overrides))
    except LudusError:
        return {}
    if digest(resolved.data) != config_hash:
        return {}
    return {path: _near(where) for path, where in resolved.origin.items()}


def _origin(path: str, origins: Mapping[str, str]) -> str:
    """Where a value came from; of a schedule where its first part did."""
    return origins.get(path) or next((where for known, where in origins.items() if known.startswith(f"{path}.")), "")


def _near(where: str) -> str:
    """A place in a folder of configs without the way to that folder."""
    whole = str(Path(where).absolute())
    return next(
        (whole.removeprefix(f"{root.parent}/") for root in search_path() if whole.startswith(f"{root}/")), where
    )
