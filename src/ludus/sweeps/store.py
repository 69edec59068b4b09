"""`runs/@sweeps/NAME`: the spec of a sweep and what its coordinator has decided, one file per trial.

A trial's file is written before its first run starts. What came of the runs is in their folders, not here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ludus import files
from ludus.archive.lock import NAME as LOCK
from ludus.archive.lock import RunLock
from ludus.archive.store import read_json, read_or_empty, runs_in
from ludus.config.read import plain, read_file, to_yaml
from ludus.errors import ConfigError, DataError
from ludus.sweeps.space import Latent
from ludus.sweeps.spec import SweepSpec
from ludus.text import clean, did_you_mean

FOLDER = "@sweeps"
SPEC = "sweep.yaml"


@dataclass
class Trial:
    """One candidate: what was chosen for it and what was decided about it."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    number: int
    latent: dict[str, Latent]
    """What the search chose; empty for the base itself."""
    told: list[int] = field(default_factory=list)
    """Trials whose results the search learned after the trial before was chosen, in that order."""
    attributes: dict[str, float] = field(default_factory=dict)
    """What the pruner remembers of it."""
    ended: Literal["", "pruned", "limit"] = ""
    """Whether it was stopped on purpose."""
    reason: str = ""
    failures: dict[str, str] = field(default_factory=dict)
    """Seed -> why its run failed."""


_TRIAL = TypeAdapter(Trial)


class SweepFolder:
    """The folder of one sweep."""

    def __init__(self, runs_dir: Path, name: str) -> None:
        self.runs_dir, self.name = runs_dir, name
        self.path = runs_dir / FOLDER / name

    @classmethod
    def create(cls, runs_dir: Path, spec: SweepSpec) -> SweepFolder:
        """The folder of a new sweep."""
        folder = cls(runs_dir, spec.name)
        if folder.exists():
            remedy = f"go on with ludus sweep resume {spec.name}, or write --name OTHER"
            raise ConfigError(str(folder.path), "there is a sweep of this name", remedy)
        if (left := _run_of(runs_dir, spec.name)) is not None:
            problem = f"is a run of an earlier sweep {spec.name}, and would be taken for one of this"
            raise ConfigError(str(runs_dir / left), problem, "write --name OTHER, or remove those runs")
        folder.make()
        files.write_text(folder.path / SPEC, to_yaml(spec.model_dump(mode="json", exclude_defaults=True)))
        return folder

    @classmethod
    def load(cls, runs_dir: Path, name: str) -> SweepFolder:
        """The folder of a sweep that exists."""
        folder = cls(runs_dir, name)
        if "/" in name or not folder.exists():
            known = names(runs_dir)
            remedy = (
                did_you_mean(name, known) if known else "start one: ludus sweep CartPole-v1:ppo algorithm.lr=1e-3,3e-4"
            )
            raise ConfigError(clean(name, 60), f"there is no such sweep in {runs_dir}/", remedy)
        return folder

    def make(self) -> None:
        """Make the folders in it that are not there."""
        for part in ("trials", "logs"):
            (self.path / part).mkdir(parents=True, exist_ok=True, mode=0o700)

    def exists(self) -> bool:
        """Whether there is a sweep in it."""
        return (self.path / SPEC).is_file()

    def spec(self) -> SweepSpec:
        """What is searched."""
        path = self.path / SPEC
        try:
            return SweepSpec.model_validate(plain(read_file(path)))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise DataError(str(path), f"{where}: {clean(first['msg'], 160)}", "undo the edit") from None

    def trials(self) -> list[Trial]:
        """Every trial that was chosen, in order."""
        found = sorted((self.path / "trials").glob("[0-9]*.json"), key=lambda path: (len(path.name), path.name))
        trials = [_trial(path) for path in found]
        if [trial.number for trial in trials] != list(range(len(trials))):
            raise DataError(str(self.path / "trials"), "a trial is missing", "restore its file")
        return trials

    def write(self, trial: Trial) -> None:
        """Write a trial's file."""
        files.write_json(self.path / "trials" / f"{trial.number:04}.json", asdict(trial))

    def claimed(self, trial: Trial) -> bool:
        """Write a trial's file if there is none of that number; whether there was none."""
        path = self.path / "trials" / f"{trial.number:04}.json"
        whole = files.beside(path)
        files.write_json(whole, asdict(trial))
        try:
            path.hardlink_to(whole)  # with its content, or not at all
        except FileExistsError:
            return False
        finally:
            whole.unlink()
        return True

    def log_of(self, name: str) -> Path:
        """Where the output of a run goes."""
        return self.path / "logs" / f"{name}.log"

    def lock(self) -> RunLock:
        """The lock that a coordinator holds."""
        return RunLock(self.path)

    def running(self) -> bool:
        """Whether a coordinator works on it."""
        return RunLock.is_held(self.path)

    def stop(self) -> int:
        """Ask the coordinator to save every run and end; returns its process."""
        owner: dict[str, Any] = read_or_empty(self.path / LOCK)
        if not self.running() or "pid" not in owner:
            raise ConfigError(self.name, "is not running", f"ludus sweep show {self.name}")
        if owner.get("host") != socket.gethostname():
            raise ConfigError(self.name, f"runs on {clean(owner.get('host'), 60)}", "stop it there")
        os.kill(int(owner["pid"]), signal.SIGTERM)
        return int(owner["pid"])


def _trial(path: Path) -> Trial:
    """A trial as its file has it."""
    facts = read_json(path)
    try:
        trial: Trial = _TRIAL.validate_python(facts)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(str(path), f"{where}: {clean(first['msg'], 160)}", "undo the edit") from None
    return trial


def names(runs_dir: Path) -> list[str]:
    """Every sweep in a folder of runs, the newest last."""
    root = runs_dir / FOLDER
    found = [path.parent for path in root.glob(f"*/{SPEC}")] if root.is_dir() else []
    return [path.name for path in sorted(found, key=lambda path: (path / SPEC).stat().st_mtime)]


def free_name(runs_dir: Path, wanted: str) -> str:
    """`wanted`, with a number after it if there is one of that name."""
    taken, count, name = set(names(runs_dir)), 1, wanted
    while name in taken or _run_of(runs_dir, name) is not None:
        count += 1
        name = f"{wanted[: 23 - len(str(count))]}-{count}"
    return name


def _run_of(runs_dir: Path, name: str) -> str | None:
    """A run of a sweep of that name, if there is one."""
    of_it = re.compile(rf"{re.escape(name)}-t\d{{4,}}[-_]")
    return next((run for run in runs_in(runs_dir) if of_it.match(run)), None)


def last_line(path: Path) -> str:
    """The last line that a process wrote, without `error: `."""
    try:
        text = files.read(path, 1 << 20).decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return clean(lines[-1].removeprefix("error: "), 300) if lines else ""


def dumps(value: object) -> str:
    """A value as short JSON text."""
    return json.dumps(value, separators=(",", ":"), default=str)
