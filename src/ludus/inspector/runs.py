"""Runs as the page may see them: only those of one folder, and no file that a link would fetch from elsewhere."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ludus.archive import checkpoint, query
from ludus.archive.index import Index
from ludus.archive.record import Record, present, read, signature
from ludus.archive.store import has_run
from ludus.errors import ConfigError, DataError
from ludus.inspector.curves import Curves
from ludus.metrics.names import EVAL_RETURN
from ludus.reports.report import checkpoints_of

PATIENCE = 0.5
"""Seconds after which a list is shown without the runs that nobody has read yet."""
READ = ("checkpoints", "videos", "imagination")
"""Subfolders that are read."""
VIDEOS = (".mp4", ".webm")


class Runs:
    """The folder of all runs."""

    def __init__(self, root: Path) -> None:
        self.root, self.index, self.curves = root, Index(root), Curves(root)
        self._known: dict[str, tuple[str, Record | None]] = {}
        """Runs that were asked for, with the signature of their folders: the index would look at all folders."""

    def select(self, filters: Sequence[str], sort: str) -> tuple[list[Record], int]:
        """The runs that fulfil the conditions of `ludus list`, and how many there are in all."""
        records = [record for record in self.index.records(PATIENCE) if not leaves(record.folder, deep=False)]
        wanted = [query.parse(text) for text in filters if text.strip()]
        return query.order(query.select(records, wanted), sort or "started"), len(records)

    def get(self, id: str) -> Record:
        """One run by its exact id; anything else, such as a path or a link, is refused."""
        if not has_run(self.root, id):
            raise ConfigError(id[:80], "there is no such run", "go back to the list of runs")
        refuse_leaving(self.root / id)
        sign, (known, record) = signature(self.root / id), self._known.get(id, ("", None))
        if record is None or known != sign:
            record = read(self.root / id)
            if record is None:
                raise DataError(id, "neither its config.yaml nor its meta.json can be read", "restore one of them")
            self._known[id] = sign, record
        return present(record)

    def facts(self, record: Record) -> dict[str, Any]:
        """What the list shows of a run."""
        return {**record.facts(), "resume": resume_command(record, self.root)}

    def whole(self, record: Record) -> dict[str, Any]:
        """Everything but curves and config."""
        evaluated = self.curves.points(record.id, EVAL_RETURN, ["env_steps", "updates"])
        rows = [{"env_steps": x, "updates": u, EVAL_RETURN: y} for x, u, y in zip(*evaluated, strict=True)]
        saved = checkpoints_of(record.folder, rows)
        kept = [{"name": one.name, "step": one.step, "size": one.size, "marks": one.marks, "mean": one.mean}
                for one in saved]  # fmt: skip
        videos = sorted(path.name for path in (record.folder / "videos").glob("*") if path.suffix in VIDEOS)
        report = (record.folder / "report.html").is_file()
        metrics = self.curves.names(record.id)
        return {**self.facts(record), "checkpoints": kept, "videos": videos, "report": report, "metrics": metrics}

    def file(self, record: Record, *parts: str) -> Path:
        """A file of a run folder to be sent; nothing that is a link or lies elsewhere."""
        path = record.folder.joinpath(*parts)
        folder = record.folder.resolve(strict=True)
        plain = (
            path.is_file() and not path.is_symlink() and path.resolve().parent in (folder, *(folder / n for n in READ))
        )
        if not plain or any(part in ("", ".", "..") or "/" in part for part in parts):
            raise DataError(record.id, "has no such file", "go back to the run")
        return path

    def checkpoint(self, record: Record, wanted: str | None) -> tuple[str, str]:
        """(name, sum of its content) of a checkpoint."""
        path = checkpoint.find(record.folder, wanted or None)
        manifest = checkpoint.read_manifest(path)
        return str(manifest["name"]), str(manifest["files"])


def refuse_leaving(folder: Path) -> None:
    """Refuse a run folder with a link that leads out of it."""
    if found := leaves(folder):
        raise DataError(folder.name, f"{found} is a link that leads out of the run folder", "put the file itself there")


def leaves(folder: Path, *, deep: bool = True) -> str:
    """The first link in what is read of a run folder that leads out of it; '' if there is none."""
    home = folder.resolve()
    places = [folder]
    if deep:
        inner = [folder / name for name in READ if not (folder / name).is_symlink()]
        places += [*inner, *_entries(folder / "checkpoints", links=False)]
    links = (path for place in places for path in _entries(place, links=True))
    return next((path.name for path in links if not _inside(path, home)), "")


def _entries(place: Path, *, links: bool) -> list[Path]:
    """The links in a folder, or all that is none; nothing if it is no folder."""
    try:
        with os.scandir(place) as found:  # knows what is a link without a system call for each
            return [Path(entry.path) for entry in found if entry.is_symlink() == links]
    except OSError:
        return []


def _inside(path: Path, home: Path) -> bool:
    try:
        return home in path.resolve(strict=True).parents
    except (OSError, RuntimeError):
        return True  # leads nowhere: reading it fails


def resume_command(record: Record, root: Path) -> str:
    """What continues a run that was killed or stopped; '' for one that needs nothing."""
    if record.state not in ("lost", "stopped", "failed"):
        return ""
    where = "" if root == Path("runs") else f" --runs-dir {shlex.quote(str(root))}"
    return f"ludus resume {shlex.quote(record.id)}{where}"
