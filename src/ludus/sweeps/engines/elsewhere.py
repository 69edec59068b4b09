"""What engines share whose processes are not ours: the command, and how a run is asked to end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ludus import files
from ludus.orchestration.callbacks.control import NAME as CONTROL
from ludus.sweeps.engines import Job

ENVIRONMENT = {"LUDUS_QUIET": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def command_of(job: Job) -> list[str]:
    """The command line of a job in a new process, which imports nothing from the working directory by itself."""
    return [sys.executable, "-P", "-m", "ludus", *job.arguments]


def environment() -> dict[str, str]:
    """The variables of this process, and one thread for each run."""
    return {**ENVIRONMENT, **os.environ, "LUDUS_QUIET": "1"}


def ask_to_end(folder: Path) -> None:
    """Ask a run on any machine to save and end: it reads this file after every epoch."""
    files.write_json(folder / CONTROL, {"stop": True})
