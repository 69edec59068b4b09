"""Memory architectures under one PPO: same task, optimizer and schedule, equal numbers of parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ludus import files
from ludus.bench.memory import jobs, matching, pictures, results
from ludus.bench.memory.jobs import Job
from ludus.bench.memory.tasks import Core, Size, Task
from ludus.errors import ConfigError
from ludus.reports.export import render
from ludus.runs.record import Record

EVALUATIONS = 20
"""Points of a curve when the budget is given."""


@dataclass(frozen=True)
class Plan:
    """What to compare, and how often."""

    tasks: Sequence[Task]
    cores: Sequence[Core]
    seeds: Sequence[int]
    share: float | None
    """Parameters as a share of the reference's; none leaves every core as wide as the config makes it."""
    steps: Sequence[int] = ()
    """Budget of a run: one for all tasks or one for each; none is the config's own."""

    def jobs(self) -> list[Job]:
        """One run per task, core and seed; the first seeds of all come before the second ones."""
        planned = []
        for task, steps in zip(self.tasks, self._budgets(), strict=True):
            target = None if self.share is None else matching.reference_size(task, self.share)
            for core in self.cores:
                size, count = self._size(task, core, target)
                planned.append((task, core, count, self._overrides(task, core, size, steps)))
        return [Job(task, core, seed, count, words) for seed in self.seeds for task, core, count, words in planned]

    def _budgets(self) -> Sequence[int | None]:
        given: Sequence[int | None] = self.steps or [None]
        if len(given) not in (1, len(self.tasks)):
            problem = f"{len(given)} budgets for {len(self.tasks)} tasks"
            raise ConfigError("--steps", problem, "give one for all, or one for each")
        return [*given] * (len(self.tasks) // len(given))

    def _size(self, task: Task, core: Core, target: int | None) -> tuple[Size | None, int]:
        if target is not None:
            return matching.matched(task, core, target)
        return None, matching.count(matching.configured(task, core, None))

    def _overrides(self, task: Task, core: Core, size: Size | None, steps: int | None) -> tuple[str, ...]:
        budget: tuple[str, ...] = ()
        if steps is not None:  # curves need points, however short the run
            every = max(1, steps // EVALUATIONS)
            budget = (f"training.total_timesteps={steps}", f"training.evaluation.every_steps={every}")
        # every core trains to the end of the budget: a run that stops early has no final return to compare
        stops = ("training.stop.eval_reward=null", "training.stop.train_reward=null")
        return (*matching.overrides(task, core, size), *budget, *stops)


def bench(plan: Plan, folder: Path, workers: int, say: Callable[[str], None]) -> list[str]:
    """Train what is missing, then write tables, pictures and sentences; the runs that failed."""
    planned = plan.jobs()
    for job in planned[: len(plan.tasks) * len(plan.cores)]:
        say(f"{job.task.name}: {job.core.name} with {job.parameters:,} parameters")
    failures = jobs.train(planned, folder / "runs", workers, say)
    publish(planned, folder)
    return failures


def publish(planned: Sequence[Job], folder: Path) -> None:
    """Everything that can be made of the runs that are finished."""
    runs = jobs.finished(planned, folder / "runs")
    if not runs:
        return
    found = results.rows(runs)
    table = results.table(found)
    files.write_text(folder / "table.md", render(table, "markdown"))
    files.write_text(folder / "table.csv", render(table, "csv"))
    files.write_text(folder / "table.tex", render(table, "latex"))
    files.write_json(folder / "results.json", {"rows": results.as_data(found)})
    files.write_text(folder / "findings.md", "".join(f"- {sentence}\n" for sentence in results.sentences(found)))
    for task in dict.fromkeys(job.task for job in runs):
        cores: dict[str, list[Record]] = {}
        for job, record in runs.items():
            if job.task == task:
                cores.setdefault(job.core.name, []).append(record)
        pictures.learning_curves(task.name, cores, folder / f"{task.name}.png")
    pictures.trade_off(found, folder / "trade-off.png")
