"""Compares memory cores under one PPO: same task, optimizer, schedule and number of parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ludus import files
from ludus.archive.record import Record
from ludus.bench.memory import jobs, matching, pictures, results, tuning
from ludus.bench.memory.jobs import BenchRun
from ludus.bench.memory.tasks import BenchTask, Core
from ludus.bench.memory.tuning import Tuning
from ludus.config.compose import load
from ludus.errors import ConfigError
from ludus.reports.export import render

EVALUATIONS = 20
"""Evaluations of a run whose budget is given."""
NO_STOPS = ("training.stop.eval_reward=null", "training.stop.train_reward=null")
"""Every run uses its whole budget, so that final returns can be compared."""


class Contestant(NamedTuple):
    """A core on a task, as large as it is compared."""

    task: BenchTask
    core: Core
    parameters: int
    overrides: tuple[str, ...]
    budget: int


@dataclass(frozen=True)
class BenchPlan:
    """Which cores are trained on which tasks, with which seeds."""

    tasks: Sequence[BenchTask]
    cores: Sequence[Core]
    seeds: Sequence[int]
    share: float | None
    """Parameters as a share of the reference's; None keeps the width of each core's config."""
    steps: Sequence[int] = ()
    """Environment steps of a run: one number for all tasks or one for each; empty keeps the config's."""
    plugins: Sequence[str] = ()
    """Files and modules of the user that every run needs."""
    tuning: Tuning | None = None
    """How every core gets a learning rate of its own; None keeps the config's."""

    @cached_property
    def contestants(self) -> list[Contestant]:
        """Every core on every task."""
        given: Sequence[int | None] = self.steps or [None]
        if len(given) not in (1, len(self.tasks)):
            problem = f"{len(given)} budgets for {len(self.tasks)} tasks"
            raise ConfigError("--steps", problem, "give one for all, or one for each")
        found = []
        for task, steps in zip(self.tasks, [*given] * (len(self.tasks) // len(given)), strict=True):
            target = None if self.share is None else matching.reference_size(task, self.share)
            for core in self.cores:
                size, count = matching.matched(task, core, target)
                words = matching.overrides(task, core, size)
                words += () if steps is None else budget_of(steps, EVALUATIONS)
                budget = steps or load(task.spec, list(words)).config.training.total_timesteps
                found.append(Contestant(task, core, count, words, budget))
        return found

    def jobs(self, factors: Mapping[tuple[str, str], float] | None = None) -> list[BenchRun]:
        """One run per task, core and seed, in the order of the seeds; `factors` multiply the learning rates."""
        planned = []
        for task, core, count, words, _ in self.contestants:
            factor = (factors or {}).get((task.name, core.name), 1.0)
            words += tuning.rate(task.spec, words, factor)
            planned.append((task, core, count, words + NO_STOPS))
        return [BenchRun(task, core, seed, count, words) for seed in self.seeds for task, core, count, words in planned]

    def tuning_jobs(self) -> dict[BenchRun, float]:
        """One shorter run per factor and tuning seed of every contestant, with its factor."""
        if self.tuning is None:
            return {}
        found: dict[BenchRun, float] = {}
        for task, core, count, words, budget in self.contestants:
            short = budget_of(max(1, round(budget * self.tuning.share)), tuning.EVALUATIONS)
            for factor in self.tuning.factors:
                tried = (*words, *short, *tuning.rate(task.spec, words, factor), *NO_STOPS)
                found |= {BenchRun(task, core, seed, count, tried): factor for seed in self.tuning.seeds}
        return found


def budget_of(steps: int, evaluations: int) -> tuple[str, ...]:
    """A budget, and evaluations at equal distances in it."""
    return (f"training.total_timesteps={steps}", f"training.evaluation.every_steps={max(1, steps // evaluations)}")


def bench(plan: BenchPlan, folder: Path, workers: int, say: Callable[[str], None]) -> list[str]:
    """Train the missing runs, then write tables and figures; returns one line per failed run."""
    for one in plan.contestants:
        say(f"{one.task.name}: {one.core.name} with {one.parameters:,} parameters")
    factors: dict[tuple[str, str], float] = {}
    if tried := plan.tuning_jobs():
        if failures := jobs.train([*tried], folder / "tuning", workers, say, plan.plugins):
            return failures  # with a rate that was not chosen like the others', no core is comparable
        found = tuning.trials(jobs.finished([*tried], folder / "tuning"), tried)
        files.write_text(folder / "tuning.md", render(tuning.table(found), "markdown"))
        factors = tuning.chosen(found)
    planned = plan.jobs(factors)
    failures = jobs.train(planned, folder / "runs", workers, say, plan.plugins)
    publish(planned, folder, say)
    return failures


def publish(planned: Sequence[BenchRun], folder: Path, say: Callable[[str], None]) -> None:
    """Write tables and figures of the finished runs, and say what they show."""
    runs = jobs.finished(planned, folder / "runs")
    if not runs:
        return
    found = results.rows(runs)
    table = results.table(found)
    for name, kind in (("table.md", "markdown"), ("table.csv", "csv"), ("table.tex", "latex")):
        files.write_text(folder / name, render(table, kind))
    files.write_json(folder / "results.json", {"rows": [dataclasses.asdict(row) for row in found]})
    for task in dict.fromkeys(job.task for job in runs):
        cores: dict[str, list[Record]] = {}
        for job, record in runs.items():
            if job.task == task:
                cores.setdefault(job.core.name, []).append(record)
        pictures.learning_curves(task.name, cores, folder / f"{task.name}.png")
    pictures.trade_off(found, folder / "trade-off.png")
    for line in results.trade_offs(found):
        say(line)
