"""Where the command of a run is carried out. An engine starts commands and tells their exit codes, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Name = Literal["local", "ray", "slurm"]
Entry = Callable[[Sequence[str]], object]
"""The command line itself: `ludus.cli.main`."""
KILLED = 255
"""Code of a process whose end nobody saw."""


@dataclass(frozen=True)
class Job:
    """One run to train."""

    name: str
    arguments: tuple[str, ...]
    """Arguments of `ludus`."""
    log: Path
    """Where its output goes."""


class Task(Protocol):
    """A job that was started."""

    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""

    def stop(self, folder: Path | None) -> None:
        """Ask it to save and end; `folder` is its run folder, if there is one."""


class Engine(Protocol):
    """Starts jobs."""

    def start(self, job: Job) -> Task:
        """Start a job."""

    def wait(self, tasks: Sequence[Task], seconds: float) -> None:
        """Return when a task may have ended, at the latest after some seconds."""

    def close(self) -> None:
        """Give everything back."""


def require(name: Name) -> None:
    """Refuse an engine whose extra or cluster is not there; a cluster that is there is not joined yet."""
    if name == "ray":
        from ludus.sweeps.engines import ray

        ray.require()
    elif name == "slurm":
        from ludus.sweeps.engines import slurm

        slurm.require()


def engine_of(name: Name, entry: Entry, scratch: Path, ranks: int = 1) -> Engine:
    """The engine of that name for runs over so many ranks; it may keep files of its own in `scratch`."""
    if name == "ray":
        from ludus.sweeps.engines.ray import RayEngine

        return RayEngine(ranks)
    if name == "slurm":
        from ludus.sweeps.engines.slurm import SlurmEngine

        return SlurmEngine(scratch, ranks)
    from ludus.sweeps.engines.local import LocalEngine

    return LocalEngine(entry)
