"""Compares memory cores under one PPO: same task, optimizer, schedule and number of parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ludus import files
from ludus.archive.record import Record
from ludus.bench.memory import jobs, matching, pictures, results
from ludus.bench.memory.jobs import BenchRun
from ludus.bench.memory.tasks import BenchTask, Core, TaskSize
from ludus.errors import ConfigError
from ludus.reports.export import render

EVALUATIONS = 20
"""Evaluations of a run whose budget is given."""


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

    def jobs(self) -> list[BenchRun]:
        """One run per task, core and seed, in the order of the seeds."""
        given: Sequence[int | None] = self.steps or [None]
        if len(given) not in (1, len(self.tasks)):
            problem = f"{len(given)} budgets for {len(self.tasks)} tasks"
            raise ConfigError("--steps", problem, "give one for all, or one for each")
        planned = []
        for task, steps in zip(self.tasks, [*given] * (len(self.tasks) // len(given)), strict=True):
            target = None if self.share is None else matching.reference_size(task, self.share)
            for core in self.cores:
                size, count = matching.matched(task, core, target)
                planned.append((task, core, count, self._overrides(task, core, size, steps)))
        return [BenchRun(task, core, seed, count, words) for seed in self.seeds for task, core, count, words in planned]

    def _overrides(self, task: BenchTask, core: Core, size: TaskSize | None, steps: int | None) -> tuple[str, ...]:
        budget: tuple[str, ...] = ()
        if steps is not None:
            every = max(1, steps // EVALUATIONS)
            budget = (f"training.total_timesteps={steps}", f"training.evaluation.every_steps={every}")
        # every run uses its whole budget, so that final returns can be compared
        stops = ("training.stop.eval_reward=null", "training.stop.train_reward=null")
        return (*matching.overrides(task, core, size), *budget, *stops)


def bench(plan: BenchPlan, folder: Path, workers: int, say: Callable[[str], None]) -> list[str]:
    """Train the missing runs, then write tables and figures; returns one line per failed run."""
    planned = plan.jobs()
    for job in planned[: len(plan.tasks) * len(plan.cores)]:
        say(f"{job.task.name}: {job.core.name} with {job.parameters:,} parameters")
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
