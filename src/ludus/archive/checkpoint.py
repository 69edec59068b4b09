"""Checkpoints: `checkpoints/step=N/` with tensors.safetensors, state.json and a manifest with the checksums of both.

A checkpoint is written under a temporary name, every file synced, the manifest last, and then renamed: it is complete
or does not exist. The links `best` and `last` are for people. Nothing is ever unpickled.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ludus import files
from ludus.errors import ConfigError, DataError, ResourceError

FORMAT, VERSION = "ludus-checkpoint", 3
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
NAME = r"(?:step|update)=\d{1,18}(?:\+\d{1,18})?"
"""`step=N`: environment steps; `step=N+M`: and M updates of an offline phase; `update=N`: a run without steps."""
_NAME = re.compile(NAME)
_ASIDE = re.compile(rf"\.old-({NAME})-[0-9a-f]+")
_STALE = re.compile(rf"\.(new|old)-{NAME}-[0-9a-f]+")
_MANIFEST_LIMIT = 1 << 20
_HEADER_LIMIT = 100_000_000


class Loaded(NamedTuple):
    """The newest good checkpoint, and the faults of newer ones."""

    state: dict[str, Any]
    path: Path
    skipped: tuple[str, ...]


def position(name: str) -> tuple[int, int]:
    """(N, M) of `step=N+M`; M is 0 where it is left out. Checkpoints of a run are in this order."""
    number, _, updates = name.partition("=")[2].partition("+")
    return int(number), int(updates or 0)


def save(folder: Path, state: Mapping[str, Any], *, name: str, best: bool = False) -> Path:
    """Write the state of a run folder as its checkpoint `name` (`step=N` or `update=N`) and point the links at it."""
    content = encode(state)
    parent, target = folder / "checkpoints", folder / "checkpoints" / name
    try:
        parent.mkdir(mode=0o700, exist_ok=True)
        sweep(folder)
        if not _same(target, content):
            _install(content, target)
        for link in ("last", *(["best"] if best else [])):
            files.replace_link(parent / link, target.name)
    except FileExistsError:  # somebody planted a link or a file there
        raise
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "free some space" if full else "see that the run folder is there and may be written"
        raise ResourceError(str(target), f"cannot save: {error.strerror}", remedy) from error
    return target


def load(path: Path) -> dict[str, Any]:
    """The state of one checkpoint; DataError names the damaged file."""
    manifest = read_manifest(path)
    return decode({name: _read_listed(path / name, entry) for name, entry in manifest["files"].items()}, path)


def decode(content: Mapping[str, bytes], path: Path) -> dict[str, Any]:
    """The state in the bytes of both files; the inverse of `encode`. Errors name `path`."""
    data = content[TENSORS]  # refuse a header that is longer than the file before allocating memory for it
    claimed, room = int.from_bytes(data[:8], "little"), max(min(len(data) - 8, _HEADER_LIMIT), 0)
    if len(data) < 8 or claimed > room:
        raise _bad(path / TENSORS, f"header of {claimed} bytes, room for {room}")
    from safetensors import SafetensorError
    from safetensors.torch import load as load_tensors

    from ludus.archive.tree import unflatten

    try:
        state = unflatten(json.loads(content[STATE]), load_tensors(data))
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _bad(path, f"not a state of ludus: {error!r}") from None
    if not isinstance(state, dict):
        raise DataError(str(path / STATE), "expected an object")
    return state


def load_newest_good(folder: Path) -> Loaded:
    """Load the newest checkpoint that is good; if none is, DataError lists the fault of each."""
    faults: list[str] = []
    for path in reversed(checkpoints(folder).values()):
        try:
            return Loaded(load(path), path, tuple(faults))
        except DataError as error:
            faults.append(error.line())
    where = str(folder / "checkpoints")
    if faults:
        raise DataError(where, "no checkpoint is good: " + " | ".join(faults))
    raise DataError(where, "there is no checkpoint", f"train again: ludus train {folder}/config.yaml")


def checkpoints(folder: Path) -> dict[str, Path]:
    """Checkpoints of a run folder by name, oldest first, by directory scan."""
    parent = folder / "checkpoints"
    names = [path.name for path in parent.iterdir()] if parent.is_dir() else []
    found = {name: parent / name for name in names if _NAME.fullmatch(name)}
    for name in names:  # a replacement was interrupted between its two renames
        aside = _ASIDE.fullmatch(name)
        if aside:
            found.setdefault(aside[1], parent / name)
    return {name: found[name] for name in sorted(found, key=position)}


def find(folder: Path, which: str | None = None) -> Path:
    """The checkpoint `best`, `last`, `step=N` or `update=N`; the default is the best one, or else the last."""
    known, parent = checkpoints(folder), folder / "checkpoints"
    if not known:
        raise DataError(str(parent), "there is no checkpoint", "train first")
    best = str((parent / "best").readlink()) if (parent / "best").is_symlink() else ""
    if which in (None, "best") and best in known:
        return known[best]
    if which in (None, "last"):
        return list(known.values())[-1]
    if which not in known:
        raise ConfigError(str(which), f"no such checkpoint in {parent}", f"there are last, {', '.join(known)}")
    return known[which]


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest; DataError if it was changed or has another format version."""
    file = path / MANIFEST
    raw = _read(file, _MANIFEST_LIMIT)
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _bad(file, f"not readable: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(str(file), f"expected format '{FORMAT}'", "it is not a checkpoint of ludus")
    if manifest.get("version") != VERSION:
        problem = f"format version {str(manifest.get('version'))[:20]}, this Ludus reads {VERSION}"
        raise DataError(str(file), problem, "use the Ludus that wrote it, or train again")
    expected, found = manifest.pop("sha256", None), _digest(_dump(manifest))
    if expected != found or _dump({**manifest, "sha256": found}) != raw:
        raise _bad(file, f"expected sha256 {str(expected)[:64]}, found {found}")
    try:
        sizes = {name: int(entry["size"]) for name, entry in manifest["files"].items() if len(entry["sha256"]) == 64}
    except (KeyError, TypeError, ValueError, AttributeError):
        sizes = {}
    if sizes.keys() != {TENSORS, STATE}:
        raise _bad(file, f"expected sizes and sums of {TENSORS} and {STATE}")
    return manifest


def sweep(folder: Path) -> None:
    """Finish or remove what a killed process left; only the process that owns the run may call it."""
    parent = folder / "checkpoints"
    for path in checkpoints(folder).values():
        aside = _ASIDE.fullmatch(path.name)
        if aside:
            path.rename(parent / aside[1])
    for path in list(parent.iterdir()) if parent.is_dir() else ():
        if _STALE.fullmatch(path.name) and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name.startswith(".") and path.name.endswith(files.TEMPORARY):
            path.unlink()


def supersede(folder: Path, current: str, best: int | None = None) -> list[str]:
    """Rename checkpoints later than `current`, from which a run goes on, to `superseded=N`.

    The link `last` then points to the newest that stays, `best` to the one of step (or update) `best` if it is there.
    """
    later = [path for name, path in checkpoints(folder).items() if position(name) > position(current)]
    try:
        for path in later:
            aside = path.with_name(f"superseded={path.name.partition('=')[2].partition('-')[0]}")
            if aside.exists():
                shutil.rmtree(aside)
            path.rename(aside)
        parent, known = folder / "checkpoints", list(checkpoints(folder))
        best_name = next((name for name in known if position(name)[0] == best), "")
        for link, name in ((parent / "last", known[-1] if known else ""), (parent / "best", best_name)):
            if link.is_symlink() and str(link.readlink()) not in known:
                files.replace_link(link, name) if name in known else link.unlink()
    except OSError as error:
        remedy = "see that the run folder may be written"
        raise ResourceError(str(folder), f"cannot set checkpoints aside: {error.strerror}", remedy) from None
    return [path.name for path in later]


def about(folder: Path) -> dict[str, object]:
    """Config and meta.json of the run as the newest readable checkpoint stores them; empty if none does."""
    for path in reversed(checkpoints(folder).values()):
        try:
            state = json.loads(_read_listed(path / STATE, read_manifest(path)["files"][STATE]))
            from ludus.archive.tree import unflatten  # imports numpy, which a listing does not need

            found = unflatten(state["about"], {})
        except (DataError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def trained(about: object) -> dict[str, Any]:
    """The config in the `about` of a checkpoint; empty if there is none."""
    config = about.get("config") if isinstance(about, dict) else None
    return config if isinstance(config, dict) else {}


def packed(state: Mapping[str, object]) -> bytes:
    """A state as one piece of bytes, to be sent to another rank."""
    content = encode(state)
    return len(content[STATE]).to_bytes(8, "little") + content[STATE] + content[TENSORS]


def unpacked(data: bytes) -> dict[str, Any]:
    """The inverse of `packed`."""
    end = 8 + int.from_bytes(data[:8], "little")
    return decode({STATE: data[8:end], TENSORS: data[end:]}, Path("state of a rank"))


def encode(state: Mapping[str, object]) -> dict[str, bytes]:
    """Both files of a checkpoint, without its manifest."""
    from safetensors.torch import save as save_tensors

    from ludus.archive.tree import flatten

    tree, tensors = flatten(state)
    return {TENSORS: save_tensors(tensors), STATE: json.dumps(tree, allow_nan=False).encode()}


def _same(target: Path, content: Mapping[str, bytes]) -> bool:
    """Whether the same state is already there and undamaged."""
    try:
        manifest = read_manifest(target)
        return all(_read_listed(target / name, manifest["files"][name]) == data for name, data in content.items())
    except DataError:
        return False


def _install(content: Mapping[str, bytes], target: Path) -> None:
    token = secrets.token_hex(6)
    new, old = (target.with_name(f".{kind}-{target.name}-{token}") for kind in ("new", "old"))
    new.mkdir(mode=0o700)
    try:
        for name, data in content.items():
            files.write_new(new / name, data)
        listed = {name: {"size": len(data), "sha256": _digest(data)} for name, data in content.items()}
        body = {"format": FORMAT, "version": VERSION, "name": target.name, "files": listed}
        files.write_new(new / MANIFEST, _dump({**body, "sha256": _digest(_dump(body))}))
        files.sync(new)
        if target.exists():
            target.rename(old)
        new.rename(target)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        raise
    files.sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _read(file: Path, limit: int) -> bytes:
    """The bytes of a file; one larger than `limit` or the machine's memory is refused before reading."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return files.read(file, min(limit, memory))
    except OSError as error:
        raise _bad(file, f"cannot be read: {error.strerror}") from None


def _read_listed(file: Path, entry: Mapping[str, Any]) -> bytes:
    size, digest = int(entry["size"]), str(entry["sha256"])
    data = _read(file, size)
    if len(data) != size:
        raise _bad(file, f"expected {size} bytes, found {len(data)}")
    if _digest(data) != digest:
        raise _bad(file, f"expected sha256 {digest}, found {_digest(data)}")
    return data


def _bad(file: Path, problem: str) -> DataError:
    return DataError(str(file), problem, "use another checkpoint")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _dump(value: object) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"
