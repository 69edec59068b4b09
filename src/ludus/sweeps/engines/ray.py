"""Tasks of a Ray cluster, each of which starts the command of a run. Folders have to be on a shared file system."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ludus.errors import ConfigError, MissingExtra
from ludus.sweeps.engines import KILLED, Job, Task
from ludus.sweeps.engines.elsewhere import ask_to_end, command_of, environment

ADDRESS = "RAY_ADDRESS"
PATIENCE = 3.0
"""Seconds that the head may take to answer; Ray itself would try for a minute."""


class RayEngine:
    """The cluster that `RAY_ADDRESS` names."""

    def __init__(self) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtra("--engine ray", "ray") from None
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self.ray: Any = ray
        self.ours = not ray.is_initialized()
        if self.ours:
            ray.init(address=_reached(), log_to_driver=False, logging_level=logging.ERROR)
        self.carry_out = ray.remote(num_cpus=1, max_retries=0)(_function())

    def start(self, job: Job) -> RayTask:
        """Hand the job to the cluster."""
        reference = self.carry_out.remote(command_of(job), str(job.log), environment(), str(Path.cwd()))
        return RayTask(self.ray, reference)

    def wait(self, tasks: Sequence[Task], seconds: float) -> None:
        """Return when a task has ended."""
        references = [task.reference for task in tasks if isinstance(task, RayTask)]
        self.ray.wait(references, timeout=seconds) if references else time.sleep(seconds)

    def close(self) -> None:
        """Leave the cluster."""
        if self.ours:
            self.ray.shutdown()


class RayTask:
    """One task of the cluster."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self.ray, self.reference = ray, reference

    def code(self) -> int | None:
        """Exit code of the command; KILLED if its worker died or it was cancelled."""
        ready, _ = self.ray.wait([self.reference], timeout=0)
        if not ready:
            return None
        try:
            return int(self.ray.get(self.reference))
        except self.ray.exceptions.RayError:
            return KILLED

    def stop(self, folder: Path | None) -> None:
        """Ask the run by its folder; a task without one has not begun."""
        ask_to_end(folder) if folder is not None else self.ray.cancel(self.reference)


def _function() -> Callable[..., int]:
    """What a worker does; a function without a module, so that a worker need not find ours."""

    def carry_out(command: list[str], log: str, environment: dict[str, str], place: str) -> int:
        import subprocess
        from pathlib import Path

        with Path(log).open("ab") as file:
            return subprocess.run(command, stdout=file, stderr=file, env=environment, cwd=place, check=False).returncode

    return carry_out


def _reached() -> str:
    """The address of the head, if it answers."""
    address = os.environ.get(ADDRESS, "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    remedy = f"start one: ray start --head --port 6379; then export {ADDRESS}=127.0.0.1:6379"
    if not host or not port.isdecimal():
        raise ConfigError(
            ADDRESS, "names no Ray cluster" if not address else f"'{address[:60]}' is no HOST:PORT", remedy
        )
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except OSError as error:
        raise ConfigError(f"{ADDRESS}={address[:60]}", f"nobody answers: {error.strerror or error}", remedy) from None
    return address
