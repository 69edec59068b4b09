"""Run folders, `runs/<name>_<time>_<random>/`, and the references by which a run is found."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ludus import files
from ludus.archive.checkpoint import NAME as CHECKPOINT
from ludus.archive.provenance import provenance
from ludus.errors import ConfigError, DataError, ResourceError
from ludus.secrets import hide
from ludus.text import did_you_mean

ROOT = Path("runs")
FOLDERS = ("checkpoints", "buffers", "videos", "imagination", "tensorboard", "wandb", "debug", "plugins")
"""Subfolders of a run folder."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_CHECKPOINT = re.compile(rf"best|last|{CHECKPOINT}")
_JSON_LIMIT = 1 << 24
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class RunFolder:
    """One run folder; `checkpoint` is the one that a reference such as `run/@best` named."""

    path: Path
    checkpoint: str | None = None

    @property
    def id(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def config_path(self) -> Path:
        """The file of the resolved config."""
        return self.path / "config.yaml"

    @property
    def videos(self) -> Path:
        """The folder of videos."""
        return self.path / "videos"

    @property
    def imagination(self) -> Path:
        """The folder of what its world model imagines, by checkpoint."""
        return self.path / "imagination"

    @classmethod
    def create(
        cls,
        root: Path,
        name: str,
        *,
        config_yaml: str,
        config_hash: str = "",
        spec: str = "",
        overrides: Sequence[str] = (),
        start: Mapping[str, object] | None = None,
        argv: Sequence[str] | None = None,
    ) -> RunFolder:
        """Create the folder of a new run; no other function does."""
        check_name(name, "experiment.name")
        folder = None
        try:
            root.mkdir(parents=True, exist_ok=True)
            last = _last_link(root)
            number = _next_number(root)
            folder = _new_folder(root, name)
            run = cls(folder)
            meta: dict[str, object] = {"name": name, "spec": spec, "overrides": list(overrides)}
            meta |= {"config_hash": config_hash, "number": number, **({"start": dict(start)} if start else {})}
            files.write_text(run.config_path, config_yaml)
            files.write_json(run.path / "meta.json", {**meta, **provenance(sys.argv if argv is None else argv)})
            run.set_status("running", started=_now())
            files.replace_link(last, run.id)
        except OSError as error:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            where, problem = str(error.filename or root), f"cannot make a run folder: {error.strerror}"
            if error.errno in _FULL:
                raise ResourceError(where, problem, "free some space") from None
            raise ConfigError(where, problem, "choose another place with --runs-dir") from None
        run.log(f"created for {spec or name}")
        return run

    @classmethod
    def adopt(cls, root: Path, name: str, assembled: Path) -> RunFolder:
        """Move a complete folder, which was put together on the same disk, to its place among the runs."""
        last = _last_link(root)
        files.write_json(assembled / "meta.json", {**read_json(assembled / "meta.json"), "number": _next_number(root)})
        folder = _new_folder(root, name)
        assembled.rename(folder)  # takes the place of the empty one in one step
        files.sync(root)
        files.replace_link(last, folder.name)
        return cls(folder)

    @classmethod
    def load(cls, root: Path, reference: str) -> RunFolder:
        """Find a run by id, unique prefix, `@last` or `@best`, each with `/@best`, `/@last` or `/step=N` after it."""
        text = reference.removeprefix(f"{root}/").rstrip("/")
        name, slash, checkpoint = text.partition("/")
        checkpoint = checkpoint.removeprefix("@")
        if slash and not _CHECKPOINT.fullmatch(checkpoint):
            raise ConfigError(reference, f"'{checkpoint}' is no checkpoint", "use run/@best, run/@last or run/step=N")
        folder = root / _find(root, name, reference)
        if not _inside(folder, root):
            raise ConfigError(reference, "leads out of the runs folder", f"use the id of a run in {root}/")
        if not (folder / "config.yaml").is_file():
            raise DataError(str(folder), "has no config.yaml", "it is not the folder of a run")
        return cls(folder, checkpoint or None)

    def refuse_links(self) -> None:
        """Refuse a folder with links in it before working there: its files would be written elsewhere."""
        for name in FOLDERS:
            path = self.path / name
            if path.is_symlink():
                raise ConfigError(str(path), "is a link", "put the folder itself there, or the whole run elsewhere")

    def set_status(self, state: str, **facts: object) -> None:
        """Replace status.json: running, finished, stopped or failed, with counters and reason."""
        shown = {key: hide(value) if isinstance(value, str) else value for key, value in facts.items()}
        status = {"state": state, "pid": os.getpid(), "updated": _now(), **shown}
        try:
            self.write("status.json", status)
        except ResourceError:
            if state not in ("running", "failed"):  # otherwise training goes on, or the failure itself is reported
                raise

    def meta(self) -> dict[str, Any]:
        """The content of meta.json."""
        return read_json(self.path / "meta.json")

    def write(self, name: str, content: str | Mapping[str, object]) -> None:
        """Replace a file by a text or by JSON."""
        path = self.path / name
        try:
            files.write_text(path, content) if isinstance(content, str) else files.write_json(path, content)
        except OSError as error:
            remedy = "free some space" if error.errno in _FULL else "see that the folder is there and may be written"
            raise ResourceError(str(path), f"cannot be written: {error.strerror}", remedy) from None

    def log(self, text: str) -> None:
        """Append one line to run.log, without control characters; on a full disk the line is lost."""
        line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in hide(text))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path / "run.log", flags, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(f"{_now()} {line}\n")


def find_run(reference: str | Path, root: str | Path = ROOT) -> RunFolder:
    """A run by the path of its folder, or by a reference such as `@last` in the folder `root` of all runs."""
    if not isinstance(reference, str | Path):
        raise ConfigError(
            "run", f"{reference!r} is no reference to a run", "give an id, @last or the path of its folder"
        )
    path = Path(reference)
    if (path / "config.yaml").is_file() and not str(reference).startswith("@"):
        path = path.resolve()
        return RunFolder.load(path.parent, path.name)
    return RunFolder.load(Path(root), str(reference))


def check_name(name: str, where: str) -> None:
    """Refuse a name that could lead out of the runs folder or needs quotes in a shell."""
    if not _NAME.fullmatch(name):
        remedy = "use up to 64 of A-Z a-z 0-9 . _ - and begin with none of . -"
        raise ConfigError(where, f"'{name[:60]}' cannot be the name of a run", remedy)


def runs_in(root: Path) -> list[str]:
    """The ids of all runs in a folder."""
    try:
        with os.scandir(root) as found:
            return sorted(entry.name for entry in found if _is_run(entry))
    except OSError:
        return []


def has_run(root: Path, id: str) -> bool:
    """Whether a folder holds a run of exactly this id."""
    path = root / id
    return bool(_NAME.fullmatch(id)) and path.is_dir() and not path.is_symlink()


def _is_run(entry: os.DirEntry[str]) -> bool:
    return bool(_NAME.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a run folder."""
    try:
        value = json.loads(files.read(path, _JSON_LIMIT))
    except FileNotFoundError:
        raise DataError(str(path), "does not exist", "the run is incomplete") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(str(path), f"not readable: {error}") from None
    if not isinstance(value, dict):
        raise DataError(str(path), "expected a JSON object")
    return value


def read_or_empty(path: Path) -> dict[str, object]:
    """A JSON object of a run folder; empty if it cannot be read."""
    try:
        return read_json(path)
    except DataError:
        return {}


def _new_folder(root: Path, name: str) -> Path:
    while True:
        folder = root / f"{name[:42]}_{time.strftime('%Y%m%d-%H%M%S')}_{secrets.token_hex(2)}"  # 64 characters at most
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder


def _last_link(root: Path) -> Path:
    """Where the link to the newest run is, or will be; anything else there is refused."""
    last = root / "@last"
    if last.exists() and not last.is_symlink():
        raise ConfigError(str(last), "is not a link to the newest run", "move it away, or use another --runs-dir")
    return last


def _next_number(root: Path) -> int:
    """The number of the newest run plus one; unlike times, numbers never go back."""
    newest = read_or_empty(root / "@last" / "meta.json").get("number")
    return 1 + (newest if isinstance(newest, int) else len(runs_in(root)))


def _last(root: Path, reference: str) -> str:
    link = root / "@last"
    target = str(link.readlink()) if link.is_symlink() else ""
    if _NAME.fullmatch(target) and (root / target).is_dir():
        return target
    problem = f"points to '{target}', which is gone" if target else f"there is no last run in {root}/"
    raise ConfigError(reference, problem, _newest(root))


def _newest(root: Path) -> str:
    known = sorted(runs_in(root), key=lambda name: name.split("_")[-2:])
    return f"the newest run is '{known[-1]}'" if known else "train one: ludus train CartPole-v1:ppo"


def _find(root: Path, name: str, reference: str) -> str:
    if name == "@last":
        return _last(root, reference)
    if name == "@best":
        from ludus.archive.index import Index  # it imports this module

        return Index(root).get(name).id
    if name.startswith("@"):
        remedy = "use an id, a unique prefix, @last or @best"
        raise ConfigError(reference, f"'{name[:60]}' is not a reference to a run", remedy)
    check_name(name, reference[:80])
    known = runs_in(root)
    if name in known:
        return name
    found = [run for run in known if run.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise ConfigError(reference, f"{len(found)} runs begin like that", f"one of {', '.join(found[:5])}{more}")
    remedy = did_you_mean(name, known) if known else _newest(root)
    raise ConfigError(reference, f"there is no such run in {root}/", remedy)


def _inside(folder: Path, root: Path) -> bool:
    try:
        return folder.resolve(strict=True).parent == root.resolve(strict=True)
    except (OSError, RuntimeError):  # gone, or a loop of links
        return False


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
