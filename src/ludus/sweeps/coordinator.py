"""The one process that owns a search: starts runs, reads their folders, stops the ones that are not worth it.

Reading order: run -> _collect -> _judge -> _fill -> _next. It keeps nothing that could not be read again: a
coordinator that is killed at any moment and started again goes on where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ludus.archive import history
from ludus.errors import ConfigError, LudusError
from ludus.session.signals import EARLY
from ludus.sweeps.engines import Engine, Job
from ludus.sweeps.ledger import INVALID, Key, Ledger, Seed
from ludus.sweeps.pool import TRIES, Ended, Pool
from ludus.sweeps.search import Search
from ludus.sweeps.stages import near
from ludus.sweeps.store import SweepFolder, Trial, last_line
from ludus.text import points

POLL = 0.5
"""Seconds between two looks at the runs."""
SAME = 3
"""So many trials that fail in the same way end the sweep."""
MEMORY = "train/system/rss_mb"

Outcome = Literal["done", "stopped"]
Watch = Callable[[list[tuple[Job, Path | None]]], None]


class Coordinator:
    """Runs a sweep to its end."""

    def __init__(
        self,
        folder: SweepFolder,
        engine: Engine,
        size: int,
        *,
        most: int | None = None,
        say: Callable[[str], None] = lambda _: None,
        watch: Watch = lambda _: None,
    ) -> None:
        """`most` is how many new trials there may be; none: all that the plan has."""
        self.folder, self.ledger = folder, Ledger(folder)
        self.spec, self.plan, self.trials = self.ledger.spec, self.ledger.plan, self.ledger.trials
        self.last = self.plan.trials if most is None else min(self.plan.trials, len(self.trials) + most)
        self.say, self.watch = say, watch
        self.pool = Pool(engine, size, folder.runs_dir)
        self.search: Search | None = None
        self.jobs: dict[Job, Key] = {}
        self.attempts: Counter[Key] = Counter()
        self.looked: dict[int, int] = {}
        """Trial -> evaluations that the pruner has seen."""
        self.stopping = False
        self.fatal: LudusError | None = None

    # ---- the loop ------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Go on until everything is done, or until `stopping` is set and every run has saved."""
        self.ledger.read_all()
        while True:
            for ended in self.pool.ended():
                self._collect(ended)
            if self.stopping or self.fatal:
                self.pool.stop(list(self.pool.tasks))
            else:
                self._judge()
                self._fill()
            if not self.pool.tasks:
                break
            self.watch([(job, self.ledger.folder_of(self.jobs[job])) for job in self.pool.tasks])
            self.pool.wait(POLL)
        if self.fatal:
            raise self.fatal
        return "stopped" if self.stopping else "done"

    def submit(self) -> None:
        """Hand everything to an engine whose jobs outlive us, and leave."""
        self.ledger.read_all()
        self._fill()
        self.say(f"{len(self.pool.tasks)} runs are on their way")

    # ---- what ended ----------------------------------------------------------------------------

    def _collect(self, ended: Ended) -> None:
        number, seed = key = self.jobs.pop(ended.job)
        trial, name = self.trials[number], ended.job.name
        problem = self.ledger.read(key)
        if key in self.ledger.results:
            self.say(f"{name}: {self.spec.metric.name} {points(self.ledger.results[key].value)}")
        elif problem is not None:
            self.fatal = problem if isinstance(problem, LudusError) else self.fatal
            self._fail(trial, seed, problem if isinstance(problem, str) else problem.line(), 0)
        elif ended.asked:
            self.say(f"{name}: stopped{f', {trial.reason}' if trial.reason else ''}")
        elif 0 < ended.code < EARLY:
            self._fail(trial, seed, last_line(ended.job.log) or f"exit code {ended.code}", ended.code)
        else:
            self.attempts[key] += 1
            if self.attempts[key] < TRIES:
                self.say(f"{name}: was killed or preempted, goes on")
            else:
                self._fail(trial, seed, f"was killed {TRIES} times, perhaps for lack of memory", ended.code)

    def _fail(self, trial: Trial, seed: Seed | str, line: str, code: int) -> None:
        trial.failures[str(seed)] = line
        self.folder.write(trial)
        self.say(f"trial {trial.number}: failed: {line}")
        lines = [text for one in self.trials for text in one.failures.values()]
        if code == ConfigError.exit_code and not self.ledger.results and lines.count(line) >= SAME:
            self.fatal = ConfigError(self.spec.name, f"{SAME} trials failed alike: {line}", "correct the spec")

    # ---- what is going on ----------------------------------------------------------------------

    def _judge(self) -> None:
        """Stop runs that take too much, and trials that the pruner gives up."""
        running = {self.jobs[job] for job in self.pool.tasks}
        for key in running:
            self._limit(self.trials[key[0]], key)
        if self.spec.pruning.type == "none":
            return
        for number in sorted({number for number, seed in running if seed in self.spec.run_seeds}):
            trial = self.trials[number]
            seen = len(self.ledger.judgement(trial).steps)
            if trial.ended or not trial.latent or seen <= self.looked.get(number, 0):
                continue
            self.looked[number] = seen
            stop, trial.attributes = self._searching().should_stop(self.ledger.judged(), number)
            if stop:
                seeds = self.spec.pruning.type == "wilcoxon"
                self._end(trial, "pruned", f"pruned after {seen} {'seeds' if seeds else 'evaluations'}")
            elif trial.attributes:
                self.folder.write(trial)

    def _limit(self, trial: Trial, key: Key) -> None:
        limits, folder = self.spec.limits, self.ledger.folder_of(key)
        if folder is None or trial.ended or (limits.minutes is None and limits.memory_mb is None):
            return
        row = history.last_row(folder)
        if limits.minutes and history.number(row.get("seconds", 0.0)) > 60 * limits.minutes:
            self._end(trial, "limit", f"took more than {limits.minutes:g} minutes")
        elif limits.memory_mb and history.number(row.get(MEMORY, 0.0)) > limits.memory_mb:
            self._end(trial, "limit", f"took more than {limits.memory_mb:g} MB")

    def _end(self, trial: Trial, how: Literal["pruned", "limit"], reason: str) -> None:
        trial.ended, trial.reason = how, reason
        self.folder.write(trial)  # before the signal: a coordinator killed in between must not start it again
        self.pool.stop([job for job, (number, _) in self.jobs.items() if number == trial.number])

    # ---- what comes next -----------------------------------------------------------------------

    def _fill(self) -> None:
        while self.pool.free and not self.fatal and (key := self._next()) is not None:
            number, seed = key
            name, root = self.spec.run_name(number, seed), self.folder.runs_dir.absolute()
            arguments = self.spec.arguments(number, self.ledger.values(self.trials[number]), seed, root)
            job = Job(name, tuple(arguments), self.folder.log_of(name).absolute())
            self.jobs[job] = key
            self.pool.start(job)

    def _next(self) -> Key | None:
        """The next run to start: of the first trial that lacks one, of a new trial, or of the confirmation."""
        trials = [trial for trial in self.trials if not trial.ended and not self.ledger.failed(trial)]
        searched = [(trial.number, seed) for trial in trials for seed in self.spec.run_seeds]
        busy = set(self.jobs.values())
        waiting = [key for key in searched if key not in self.ledger.results and key not in busy]
        if waiting:
            return waiting[0]
        if len(self.trials) < self.last:
            trial = self._new_trial()
            return self._next() if trial.failures else (trial.number, self.spec.run_seeds[0])
        if self.spec.confirmation is None or busy & set(searched):
            return None  # the best are known when the last trial has ended
        chosen = self.plan.confirmed(self.ledger.judged())
        again = [(number, seed) for number in chosen for seed in self.spec.confirmation.seeds]
        failed = [(number, seed) for number, seed in again if str(seed) in self.trials[number].failures]
        done = {*self.ledger.results, *busy, *failed}
        return next((key for key in again if key not in done), None)

    def _new_trial(self) -> Trial:
        number, known = len(self.trials), self.ledger.judged()
        if self.plan.is_base(number):
            trial = Trial(number, {})
        elif self.plan.grid is not None:
            trial = Trial(number, self.plan.grid[number - self.plan.first])
        elif number - self.plan.first < len(self.plan.coarse):
            trial = Trial(number, self.plan.coarse[number - self.plan.first])
        else:
            search = self._searching()
            best = next(iter(self.plan.ranking(known)), None) if self.plan.is_fine(number) else None
            around = None if best is None else near(self.spec.parameters, self.trials[best].latent)
            trial = Trial(number, search.ask(known, around), search.told(known))
        self.trials.append(trial)
        try:
            self.plan.check(trial.latent)
        except LudusError as error:  # a combination that no single value gives away
            self._fail(trial, INVALID, error.line(), error.exit_code)
        else:
            self.folder.write(trial)
        return trial

    def _searching(self) -> Search:
        if self.search is None:
            self.search = Search(self.spec, self.plan.evaluations)
        return self.search


def retry_failed(folder: SweepFolder) -> int:
    """Forget the failures of a sweep, so that its next start tries them again; returns how many there were."""
    found = [trial for trial in folder.trials() if trial.failures]
    for trial in found:
        trial.failures = {}
        folder.write(trial)
    return len(found)
