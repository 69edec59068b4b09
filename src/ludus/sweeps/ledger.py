"""Every trial of a sweep with what its runs say: read from the folders, kept nowhere else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ludus.errors import DataError, LudusError
from ludus.sweeps.objective import course, missing, objective
from ludus.sweeps.plan import Plan
from ludus.sweeps.pool import run_folder, state_of
from ludus.sweeps.search import Judged
from ludus.sweeps.space import values_of
from ludus.sweeps.store import SPEC, SweepFolder, Trial

Seed = int | None
Key = tuple[int, Seed]
"""One run: its trial and its seed; None for the seed of its config."""
INVALID = "config"
"""Stands for a seed where the config of a trial is not valid."""


@dataclass(frozen=True)
class RunResult:
    """What the folder of a finished run says."""

    value: float
    course: list[float]


class Ledger:
    """The trials of a sweep and the results of their runs."""

    def __init__(self, folder: SweepFolder) -> None:
        self.folder, self.spec = folder, folder.spec()
        self.plan = Plan(self.spec)
        self.trials = folder.trials()
        self._check()
        self.results: dict[Key, RunResult] = {}
        self._folders: dict[Key, Path] = {}

    def _check(self) -> None:
        """Refuse trials that are none of this search, such as after an edit of the spec."""
        for trial in self.trials:
            wrong = [one.key for one in self.spec.parameters if not one.may_be(trial.latent.get(one.key))]
            if trial.latent and wrong:
                problem = f"trial {trial.number} has no such {wrong[0]}"
                raise DataError(str(self.folder.path), problem, f"undo the edit of {SPEC} or of the trial")

    def read_all(self) -> None:
        """Take in every run that is finished."""
        for trial in self.trials:
            for seed in self.seeds(trial.number):
                self.read((trial.number, seed))

    def read(self, key: Key) -> LudusError | str | None:
        """Take in a run; returns what is wrong with the number of a finished one, if anything."""
        number, _ = key
        run, metric = self.folder_of(key), self.spec.metric.name
        if key in self.results or run is None or state_of(run) != "finished":
            return None
        budget = self.plan.budget(values_of(self.spec.parameters, self.trials[number].latent))
        value, way = objective(run, metric, budget), course(run, metric)
        if not math.isfinite(value):
            return f"{metric} is {value}" if way else missing(run, metric)
        self.results[key] = RunResult(value, way)
        return None

    def judged(self) -> list[Judged]:
        """Every trial with what its runs say now."""
        return [self.judgement(trial) for trial in self.trials]

    def judgement(self, trial: Trial) -> Judged:
        """One of them."""
        seeds = self.spec.run_seeds
        done = {seed: self.results[key] for seed in seeds if (key := (trial.number, seed)) in self.results}
        if self.spec.pruning.type == "wilcoxon":
            steps = {i: done[seed].value for i, seed in enumerate(seeds) if seed in done}
        else:
            steps = self._steps(trial, [one.course for one in done.values()])
        if trial.ended:
            return Judged(trial, "pruned" if trial.ended == "pruned" else "failed", None, steps)
        if self.failed(trial):
            return Judged(trial, "failed", None, steps)
        if len(done) < len(seeds):
            return Judged(trial, "open", None, steps)
        return Judged(trial, "complete", sum(one.value for one in done.values()) / len(done), steps)

    def failed(self, trial: Trial) -> bool:
        """Whether a run of the search failed; one of the confirmation does not count."""
        return any(str(seed) in trial.failures for seed in (INVALID, *self.spec.run_seeds))

    def seeds(self, number: int) -> tuple[Seed, ...]:
        """The seeds that a trial may have runs of."""
        again = self.spec.confirmation
        return self.spec.run_seeds if again is None else (*self.spec.run_seeds, *again.seeds)

    def values(self, trial: Trial) -> dict[str, object]:
        """The settings of a trial."""
        return values_of(self.spec.parameters, trial.latent)

    def folder_of(self, key: Key) -> Path | None:
        """The run folder, if there is one."""
        if key not in self._folders:
            found = run_folder(self.folder.runs_dir, self.spec.run_name(*key))
            if found is None:
                return None
            self._folders[key] = found
        return self._folders[key]

    def _steps(self, trial: Trial, finished: list[list[float]]) -> dict[int, float]:
        """Evaluation -> mean over the seeds that have it; not beyond what every run under way has."""
        runs = [(trial.number, seed) for seed in self.spec.run_seeds]
        open_ones = [folder for key in runs if key not in self.results and (folder := self.folder_of(key)) is not None]
        under_way = [course(folder, self.spec.metric.name) for folder in open_ones]
        length = min(map(len, under_way), default=max(map(len, finished), default=0))
        columns = [[one[step] for one in (*finished, *under_way) if step < len(one)] for step in range(length)]
        return {step + 1: sum(column) / len(column) for step, column in enumerate(columns)}
