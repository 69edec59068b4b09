"""`ludus train --seed 1..10 --jobs 2`: several seeds at once, each an ordinary run in a process of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.cli.board import Board
from ludus.cli.outcome import tell
from ludus.cli.sweep_run import EngineName, stopping
from ludus.errors import ConfigError
from ludus.session.signals import EARLY
from ludus.sweeps.pool import TRIES, Pool, run_folder, state_of
from ludus.terminal import warn

if TYPE_CHECKING:
    from ludus.config.compose import Resolved
    from ludus.sweeps.engines import Job

POLL = 0.5
LOGS = "@logs"
"""Folder beside the runs for what their processes print."""


def at_once(text: str) -> int:
    """The number of `--jobs 2` or `--jobs auto`."""
    if text == "auto":
        from ludus.envs.make import cores

        return cores()
    if not text.isdecimal() or not 0 < int(text) < 10_000:
        raise ConfigError(f"--jobs {text}", "is not a number of runs", "write --jobs 2 or --jobs auto")
    return int(text)


def options_of(runs_dir: Path, plugins: list[Path] | None, init_from: str | None, *, debug: bool) -> list[str]:
    """The options that every run of the command shares; tags are among the overrides of each."""
    named = [*(f"--plugin={plugin}" for plugin in plugins or []), *([f"--init-from={init_from}"] if init_from else [])]
    return ["-q", f"--runs-dir={runs_dir.absolute()}", *named, *(["--debug"] if debug else [])]


def train_many(
    runs: Sequence[Resolved],
    options: Sequence[str],
    runs_dir: Path,
    jobs: str | None,
    engine: EngineName,
    *,
    json: bool,
    unfinished: bool,
) -> int:
    """Train all of them, some at a time, or without a number all at once; failures are told apart at the end."""
    size = len(runs) if jobs is None else at_once(jobs)
    many = train_all(runs, options, runs_dir, size, engine, unfinished=unfinished)
    tell([folder for folder in many.done if folder is not None], json=json)
    for line in many.failures:
        warn(line)
    return many.code


def train_all(
    runs: Sequence[Resolved],
    options: Sequence[str],
    runs_dir: Path,
    size: int,
    engine: EngineName,
    *,
    unfinished: bool,
) -> SeedRuns:
    """Train runs, `size` of them at a time; with `unfinished`, those that are finished already stay as they are."""
    from ludus.cli import main
    from ludus.sweeps.engines import engine_of

    runs_dir.mkdir(parents=True, exist_ok=True)
    many = SeedRuns(runs, options, runs_dir, unfinished=unfinished)
    runner = engine_of(engine, main, runs_dir / LOGS, runs[0].config.runtime.ranks)
    budgets = {run.config.training.budget.total for run in runs}
    try:
        with Board(budgets.pop() if len(budgets) == 1 else 0) as board, stopping(many):
            many.run(Pool(runner, size, runs_dir), board)
    finally:
        runner.close()
    return many


class SeedRuns:
    """The seeds of one command."""

    def __init__(self, runs: Sequence[Resolved], options: Sequence[str], runs_dir: Path, *, unfinished: bool) -> None:
        from ludus.archive.store import runs_in

        self.runs, self.options, self.runs_dir, self.unfinished = runs, options, runs_dir, unfinished
        self.before = set() if unfinished else set(runs_in(runs_dir))
        """Runs of earlier commands, which are none of ours."""
        kept = [_finished(run, runs_dir) if unfinished else None for run in runs]
        self.done: list[Path | None] = kept
        self.waiting = [i for i, folder in enumerate(kept) if folder is None]
        self.jobs: dict[Job, int] = {}
        self.attempts: Counter[int] = Counter()
        self.failures: list[str] = []
        self.stopping, self.code = False, 0

    def run(self, pool: Pool, board: Board) -> None:
        """Start, watch and collect until nothing is left."""
        while True:
            for ended in pool.ended():
                self._collect(self.jobs.pop(ended.job), ended.job, ended.code, board)
            if self.stopping:
                pool.stop(list(pool.tasks))
            while pool.free and self.waiting and not self.stopping:
                job = self._job(i := self.waiting.pop(0))
                self.jobs[job] = i
                pool.start(job)
            if not pool.tasks:
                break
            board.watch([(job, self._folder(self.jobs[job])) for job in pool.tasks])
            pool.wait(POLL)
        if self.stopping:
            self.code = EARLY

    def _job(self, i: int) -> Job:
        from ludus.sweeps.engines import Job

        run, again = self.runs[i], self.unfinished or self.attempts[i]
        arguments = ["train", run.spec, *run.overrides, *self.options, *(["--resume=auto"] if again else [])]
        name = self._name(i)
        logs = self.runs_dir / LOGS
        logs.mkdir(exist_ok=True, mode=0o700)
        log = logs / f"{name}.log"
        log.unlink(missing_ok=True)
        return Job(name, tuple(arguments), log.absolute())

    def _name(self, i: int) -> str:
        return f"{self.runs[i].run_name}-s{self.runs[i].config.experiment.seed}"

    def _collect(self, i: int, job: Job, code: int, board: Board) -> None:
        from ludus.sweeps.store import last_line

        folder = self._folder(i)
        if state_of(folder) == "finished":
            self.done[i] = folder
            board.say(f"{job.name}: {_told(folder)}")
        elif self.stopping:
            board.say(f"{job.name}: stopped, saved")
        elif 0 < code < EARLY:
            self._fail(job.name, last_line(job.log) or f"exit code {code}", code, board)
        else:
            self.attempts[i] += 1
            if self.attempts[i] < TRIES:
                board.say(f"{job.name}: was killed or preempted, goes on")
                self.waiting.append(i)
            else:
                self._fail(job.name, f"was killed {TRIES} times, perhaps for lack of memory", 5, board)

    def _fail(self, name: str, line: str, code: int, board: Board) -> None:
        board.say(f"{name}: failed: {line}")
        self.failures.append(f"{name}: failed: {line}")
        self.code = self.code or code

    def _folder(self, i: int) -> Path | None:
        from ludus.config.compose import config_hash

        run = self.runs[i]
        return run_folder(self.runs_dir, run.run_name, config_hash(run.config), without=self.before)


def _finished(run: Resolved, runs_dir: Path) -> Path | None:
    from ludus.session.resume import finished  # it imports torch, which a coordinator does not need

    return finished(run.config, runs_dir)


def _told(folder: Path | None) -> str:
    from ludus.archive.store import read_or_empty
    from ludus.text import duration, points

    facts = {} if folder is None else read_or_empty(folder / "metrics.json")
    mean, seconds = facts.get("mean"), facts.get("seconds")
    result = f"last evaluation {points(mean)}" if isinstance(mean, float) else "finished"
    return result + (f" in {duration(seconds)}" if isinstance(seconds, float) else "")
