"""A published run: which files it is made of, how large each may be, and `ludus.json`, which lists their sums.

Everything that is read from a package may come from a stranger. So its files have fixed names and limits, each is
compared with its sum before anything looks into it, and nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ludus import files
from ludus.archive.checkpoint import NAME as CHECKPOINT
from ludus.archive.steps import LARGEST, PIECE
from ludus.errors import DataError
from ludus.text import clean

FORMAT, VERSION = "ludus-run", 1
MANIFEST, CONFIG, SPACES, ROWS = "ludus.json", "config.yaml", "spaces.json", "metrics.jsonl"
WEIGHTS, STATE = "model.safetensors", "state.json"
CARD, VIDEO, CURVE = "README.md", "replay.mp4", "curve.png"
MB = 2**20
LIMITS = {MANIFEST: 4 * MB, CONFIG: 2 * MB, SPACES: 16 * MB, STATE: 64 * MB, ROWS: 512 * MB, WEIGHTS: 8_192 * MB}
"""What a run is loaded from, and the most bytes that each file may have."""
MOST_FILES = 20_000
"""Of a run with its stored steps."""
REQUIRED = frozenset({CONFIG, STATE, WEIGHTS})
SHOWN = frozenset({CARD, VIDEO, CURVE, ".gitattributes"})
"""What only people look at: it is never downloaded. The Hub itself adds the last one."""
NOT_PUBLISHED = "not-published"
"""Stands for the folder of stored steps, which stay where they are."""
COLLECTED = ("returns", "lengths", "episodes", "best_return", "steps")
"""What is published of a collector's state: its statistics."""
NOTHING_KEPT = "nothing of it was kept"
_LARGEST = 2**63
_SUM, _TEXT = re.compile(r"[0-9a-f]{64}"), re.compile(r"[\w.:/+ @()-]{0,120}")
_PLUGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}")


@dataclass(frozen=True)
class Manifest:
    """`ludus.json`."""

    checkpoint: str
    """`step=N` or `update=N`."""
    run: dict[str, Any]
    """Facts about the run: id, name, spec, state, reason, counters, start."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Versions and commit of the code that trained it."""
    plugins: list[dict[str, str]] = field(default_factory=list)
    """Name and sha256 of the plugins that it needs; their code is not published."""
    evaluation: dict[str, Any] | None = None
    """Episodes of the published checkpoint, with every return."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Size and sha256 by name."""

    def write(self, folder: Path) -> None:
        """Write it beside the files that it lists."""
        content = {"format": FORMAT, "version": VERSION, **vars(self)}
        files.write_json(folder / MANIFEST, content)


def listed(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and sum of the files of a package, as far as a run is loaded from them."""
    names = [*LIMITS, *(path.name for path in folder.iterdir() if PIECE.fullmatch(path.name))]
    found = {name: folder / name for name in sorted(names) if name != MANIFEST}
    return {
        name: {"size": path.stat().st_size, "sha256": files.sha256(path)}
        for name, path in found.items()
        if path.is_file()
    }


def limit(name: str, *, steps: bool) -> int:
    """The most bytes that a file may have, stored `steps` included or not; -1 for one that no run is loaded from."""
    return LARGEST if steps and PIECE.fullmatch(name) else LIMITS.get(name, -1)


def read_manifest(data: bytes, where: str, *, steps: bool = False) -> Manifest:
    """A manifest whose every field has the form it must have; it may list stored `steps`."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise refusal(where, MANIFEST, f"not readable: {clean(error, 80)}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise refusal(where, MANIFEST, f"expected format '{FORMAT}'")
    if found.get("version") != VERSION:
        problem = f"format version {clean(found.get('version'), 20)}, this Ludus reads {VERSION}"
        raise DataError(where, f"{MANIFEST}: {problem}", "use the Ludus that published it")
    if not re.fullmatch(CHECKPOINT, str(found.get("checkpoint"))):
        raise refusal(where, MANIFEST, f"'{clean(found.get('checkpoint'), 40)}' is no checkpoint")
    evaluation = found.get("evaluation")
    return Manifest(
        checkpoint=str(found["checkpoint"]),
        run={key: _plain(value) for key, value in _mapping(found.get("run")).items()},
        provenance={key: _facts(value) for key, value in _mapping(found.get("provenance")).items()},
        plugins=_plugins(found.get("plugins"), where),
        evaluation=None if evaluation is None else _evaluation(evaluation, where),
        files=_files(found.get("files"), where, steps),
    )


def check_file(path: Path, entry: Mapping[str, Any], where: str) -> None:
    """Refuse a file that is not, to the bit, what the manifest lists."""
    try:
        with files.open_regular(path, follow=False) as file:
            size = path.lstat().st_size
            digest = "" if size != entry["size"] else hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise refusal(where, path.name, f"cannot be read: {error.strerror}") from None
    if size != entry["size"]:
        raise refusal(where, path.name, f"expected {entry['size']:,} bytes, found {size:,}")
    if digest != entry["sha256"]:
        raise refusal(where, path.name, f"expected sha256 {entry['sha256']}, found {digest}")


def check_names(sizes: Mapping[str, int], where: str, *, steps: bool = False) -> None:
    """Refuse a repository with files that no published run has, and files that are too large."""
    unknown = sorted(name for name in sizes if limit(name, steps=steps) < 0 and name not in SHOWN)
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise refusal(where, clean(unknown[0], 80) + more, "is no file of a published run")
    for name, size in sizes.items():
        if name not in SHOWN and not 0 <= size <= limit(name, steps=steps):
            raise refusal(where, name, f"has {size:,} bytes, the limit is {limit(name, steps=steps):,}")
    if MANIFEST not in sizes:
        raise refusal(where, MANIFEST, "is missing: Ludus did not publish this")


def local_paths(value: object, at: str = "") -> Iterator[str]:
    """Where in a config a text is a path that only one machine has."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from local_paths(item, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from local_paths(item, at)
    elif isinstance(value, str) and (value.startswith(("/", "~", "\\\\")) or ".." in value.split("/")):
        yield at


def refusal(where: str, name: str, problem: str) -> DataError:
    """Why a package is not taken."""
    return DataError(where, f"{name}: {problem}", NOTHING_KEPT)


def _files(found: object, where: str, steps: bool) -> dict[str, dict[str, Any]]:
    entries = _mapping(found)
    for name, entry in entries.items():
        facts = _mapping(entry)
        most = limit(name, steps=steps)
        if most < 0 or name == MANIFEST:
            raise refusal(where, MANIFEST, f"lists '{clean(name, 60)}', which is no file of a published run")
        size = facts.get("size")
        if type(size) is not int or not 0 <= size <= most or not _SUM.fullmatch(str(facts.get("sha256"))):
            raise refusal(where, MANIFEST, f"{name}: no possible size and sha256")
    if missing := sorted(REQUIRED - entries.keys()):
        raise refusal(where, MANIFEST, f"does not list {missing[0]}")
    return {name: {"size": entry["size"], "sha256": entry["sha256"]} for name, entry in entries.items()}


def _plugins(found: object, where: str) -> list[dict[str, str]]:
    """Names without a path: they only say what the user has to bring along."""
    entries = [_mapping(entry) for entry in found] if isinstance(found, list) else []
    for entry in entries:
        if not _PLUGIN.fullmatch(str(entry.get("name", ""))):
            raise refusal(where, MANIFEST, f"'{clean(entry.get('name'), 60)}' cannot be the name of a plugin")
    return [{"name": str(entry["name"]), "sha256": clean(entry.get("sha256", ""), 64)} for entry in entries[:20]]


def _evaluation(found: object, where: str) -> dict[str, Any]:
    facts = _mapping(found)
    returns = facts.get("returns")
    good = isinstance(returns, list) and 0 < len(returns) <= 100_000
    if not good or not all(map(_is_number, returns or ())):
        raise refusal(where, MANIFEST, "evaluation: no list of returns")
    interval = [] if facts.get("low") is facts.get("high") is None else ["low", "high"]
    if not all(_is_number(facts.get(key)) for key in ("mean", "std", *interval)):
        raise refusal(where, MANIFEST, "evaluation: no numbers as mean, deviation and interval")
    seed, habit = facts.get("seed"), facts.get("deterministic")
    if type(seed) is not int or not 0 <= seed < 2**32 or not isinstance(habit, bool):
        raise refusal(where, MANIFEST, "evaluation: no seed, or not said whether actions are greedy")
    return {**{key: _plain(value) for key, value in facts.items()}, "returns": [float(one) for one in returns or ()]}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _facts(value: object) -> object:
    if isinstance(value, dict):
        return {clean(key, 40): _plain(item) for key, item in list(value.items())[:40]}
    return _plain(value)


def _plain(value: object) -> object:
    """A number, or a short text of harmless characters; None for anything else."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value if abs(value) < _LARGEST else None
    return value if isinstance(value, str) and _TEXT.fullmatch(value) else None


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
