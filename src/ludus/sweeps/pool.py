"""Runs jobs on an engine, some at a time, and finds their folders."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ludus.archive import rebuild
from ludus.archive.lock import RunLock
from ludus.archive.store import read_or_empty, runs_in
from ludus.sweeps.engines import KILLED, Engine, Job, Task

TRIES = 3
"""How often a run is started that dies or is preempted; it goes on where it was saved."""


@dataclass(frozen=True)
class Ended:
    """How a job ended."""

    job: Job
    code: int
    asked: bool
    """Whether it was asked to."""


class Held:
    """A run that another process, such as one a killed coordinator left, is still working on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def code(self) -> int | None:
        """None until the folder is free."""
        return None if RunLock.is_held(self.folder) else KILLED

    def stop(self, folder: Path | None) -> None:
        """Nothing: it was asked when its coordinator died, or is none of ours."""


@dataclass
class Pool:
    """The jobs under way."""

    engine: Engine
    size: int
    runs_dir: Path
    tasks: dict[Job, Task] = field(default_factory=dict)
    asked: set[Job] = field(default_factory=set)

    @property
    def free(self) -> bool:
        """Whether another job may start."""
        return len(self.tasks) < self.size

    def start(self, job: Job) -> None:
        """Start a job, or wait for the process that has its folder."""
        folder = self.folder_of(job)
        held = folder is not None and RunLock.is_held(folder)
        self.tasks[job] = Held(folder) if held and folder else self.engine.start(job)

    def ended(self) -> list[Ended]:
        """The jobs that have ended since the last call."""
        found = [(job, code) for job, task in self.tasks.items() if (code := task.code()) is not None]
        for job, _ in found:
            del self.tasks[job]
        told = [Ended(job, code, job in self.asked) for job, code in found]
        self.asked -= {job for job, _ in found}
        return told

    def stop(self, jobs: Sequence[Job]) -> None:
        """Ask jobs to save and end, once each."""
        for job in jobs:
            if job in self.tasks and job not in self.asked:
                self.asked.add(job)
                self.tasks[job].stop(self.folder_of(job))

    def wait(self, seconds: float) -> None:
        """Return when a job may have ended."""
        self.engine.wait(list(self.tasks.values()), seconds)

    def folder_of(self, job: Job) -> Path | None:
        """The run folder of a job, if it has one."""
        return run_folder(self.runs_dir, job.name)


def run_folder(runs_dir: Path, name: str, config_hash: str | None = None, without: Collection[str] = ()) -> Path | None:
    """The newest run of that name (and config), none of those `without`: a finished one, if there is one."""
    start = f"{name[:42]}_"
    found = [runs_dir / run for run in runs_in(runs_dir) if run.startswith(start) and "_" not in run[len(start) + 16 :]]
    found = [path for path in found if path.name not in without]
    if config_hash is not None:
        found = [path for path in found if read_or_empty(path / "meta.json").get("config_hash") == config_hash]
    return max(found, key=lambda path: (state_of(path) == "finished", _number(path), path.name), default=None)


def state_of(folder: Path | None) -> str:
    """What status.json says; `none` without a folder."""
    return "none" if folder is None else str(rebuild.status(folder).get("state") or "lost")


def _number(folder: Path) -> int:
    number = read_or_empty(folder / "meta.json").get("number")
    return number if isinstance(number, int) else 0
