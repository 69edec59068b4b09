"""Trains the runs of a benchmark: ordinary runs in one folder, so that a second call trains only missing ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ludus.archive.index import Index
from ludus.archive.record import Record
from ludus.bench.memory.tasks import BenchTask, Core
from ludus.config.compose import config_hash, load
from ludus.config.schema import ExperimentConfig


@dataclass(frozen=True)
class BenchRun:
    """One core on one task with one seed."""

    task: BenchTask
    core: Core
    seed: int
    parameters: int
    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """The experiment's name, shared by all seeds."""
        return f"{self.task.name}.{self.core.name}"

    @property
    def words(self) -> list[str]:
        """Spec and overrides of the run."""
        common = ("runtime.threads=1", "logging.console=false", f"experiment.name={self.name}")
        return [self.task.spec, *self.overrides, *common, f"experiment.seed={self.seed}"]

    @property
    def config(self) -> ExperimentConfig:
        """The resolved config."""
        spec, *overrides = self.words
        return load(spec, overrides).config


def finished(jobs: Sequence[BenchRun], folder: Path) -> dict[BenchRun, Record]:
    """The jobs whose run is finished, with its record."""
    runs = {record.config_hash: record for record in Index(folder).records() if record.state == "finished"}
    return {job: runs[key] for job in jobs if (key := config_hash(job.config)) in runs}


def train(
    jobs: Sequence[BenchRun], folder: Path, workers: int, say: Callable[[str], None], plugins: Sequence[str] = ()
) -> list[str]:
    """Train every unfinished run, `workers` at a time; returns one line per failed run."""
    folder.mkdir(parents=True, exist_ok=True)
    done = finished(jobs, folder)
    left = [job for job in jobs if job not in done]
    if done:
        say(f"{len(done)} of {len(jobs)} runs are finished already")
    failures: list[str] = []

    def train_one(job: BenchRun) -> None:
        name = f"{job.task.name}: {job.core.name}, seed {job.seed}"
        say(name)
        if problem := _train(job, folder, plugins):
            failures.append(f"{name}: {problem}")
            say(failures[-1])

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(train_one, left))
    return failures


def _train(job: BenchRun, folder: Path, plugins: Sequence[str]) -> str | None:
    """Train in a new process, which imports nothing from the working directory by itself; the error line, or None."""
    options = ["--resume", "auto", "-q", "--runs-dir", str(folder), *(f"--plugin={name}" for name in plugins)]
    command = [sys.executable, "-P", "-m", "ludus", "train", *job.words, *options]
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **threads}, check=False)
    if ended.returncode == 0:
        return None
    lines = ended.stderr.strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else f"exit code {ended.returncode}"
