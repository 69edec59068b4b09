"""Jobs of SLURM, through submitit. A preempted job saves, is queued again and goes on.

`SBATCH_PARTITION`, `SBATCH_TIMELIMIT` and the other variables of sbatch apply. `LUDUS_SUBMITIT=local` takes processes
of this machine instead, with the same preemption: that is how it is tested without a cluster.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ludus.errors import ConfigError, MissingExtra
from ludus.sweeps.engines import KILLED, Job, Task
from ludus.sweeps.engines.elsewhere import ask_to_end, command_of, environment

CLUSTER = "LUDUS_SUBMITIT"
MINUTES = 24 * 60
"""Time limit of a job, unless SBATCH_TIMELIMIT says otherwise."""


def require() -> str:
    """The cluster that submitit submits to, if it is there."""
    try:
        import submitit  # noqa: F401
    except ImportError:
        raise MissingExtra("--engine slurm", "slurm") from None
    cluster = os.environ.get(CLUSTER, "slurm")
    if cluster not in ("slurm", "local"):
        raise ConfigError(CLUSTER, f"'{cluster[:40]}' is no cluster", "unset it, or write local")
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise ConfigError("--engine slurm", "there is no sbatch on this machine", "run it where SLURM is installed")
    return cluster


class SlurmEngine:
    """The cluster that sbatch submits to."""

    def __init__(self, scratch: Path, ranks: int = 1) -> None:
        cluster = require()
        import submitit

        self.executor: Any = submitit.AutoExecutor(scratch / "submitit", cluster=cluster)
        self.executor.update_parameters(timeout_min=MINUTES, cpus_per_task=ranks, name="ludus")

    def start(self, job: Job) -> SlurmTask:
        """Submit the job."""
        return SlurmTask(self.executor.submit(Command(command_of(job), str(job.log), environment(), str(Path.cwd()))))

    def wait(self, tasks: Sequence[Task], seconds: float) -> None:
        """Wait: a queue tells nothing by itself."""
        time.sleep(seconds)

    def close(self) -> None:
        """Nothing: jobs outlive us."""


class SlurmTask:
    """One job of the queue."""

    def __init__(self, job: Any) -> None:
        self.job = job

    def code(self) -> int | None:
        """Exit code of the command; KILLED if the job has none."""
        from submitit.core.utils import FailedJobError, UncompletedJobError

        if not self.job.done():
            return None
        try:
            return int(self.job.result())
        except (FailedJobError, UncompletedJobError):
            return KILLED

    def stop(self, folder: Path | None) -> None:
        """Ask the run by its folder; a job without one is taken out of the queue."""
        ask_to_end(folder) if folder is not None else self.job.cancel()


class Command:
    """The command of a run as a job; on preemption it saves and is queued again."""

    def __init__(self, command: list[str], log: str, environment: dict[str, str], place: str) -> None:
        self.command, self.log, self.environment, self.place = command, log, environment, place

    def __call__(self) -> int:
        """Carry it out; returns its exit code."""
        global _process
        with Path(self.log).open("ab") as file:
            _process = subprocess.Popen(
                self.command, stdout=file, stderr=file, env=self.environment, cwd=self.place, start_new_session=True
            )
            return _process.wait()

    def checkpoint(self) -> Any:
        """Called by submitit when the job is preempted."""
        from submitit.helpers import DelayedSubmission

        if _process is not None:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):  # it has just ended
                os.kill(_process.pid, signal.SIGTERM)
                # we are in a signal handler, and `wait` of the code below us holds the lock of the process
                os.waitid(os.P_PID, _process.pid, os.WEXITED | os.WNOWAIT)
        return DelayedSubmission(Command(self.command, self.log, self.environment, self.place))


_process: subprocess.Popen[bytes] | None = None
"""The command of this job's process; a job is pickled, and this cannot be."""
