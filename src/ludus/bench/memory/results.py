"""The results of a memory benchmark: one row per task and core."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ludus.bench.memory.jobs import BenchRun
from ludus.bench.memory.latency import decision_ms
from ludus.metrics.names import EVAL_RETURN
from ludus.reports.compare import Scores, compare
from ludus.reports.export import TextTable
from ludus.runs import history
from ludus.runs.record import Record
from ludus.text import number

CPU = "train/time/cpu_seconds"
HEAD = (
    "task", "core", "parameters", "n", "IQM", "95 % interval", "min", "max", "solved", "steps to threshold",
    "steps/s of CPU", "minutes", "ms per decision",
)  # fmt: skip


@dataclass(frozen=True)
class CoreResult:
    """One core on one task, summarised over its seeds."""

    task: str
    core: str
    parameters: int
    returns: Scores
    """Mean return of each run's last evaluation."""
    solved: int
    """Number of runs that reached the threshold at some evaluation."""
    steps_to_threshold: float | None
    speed: float
    """Environment steps per second of CPU time while training, median over runs."""
    minutes: float
    latency: float
    """Median milliseconds of one decision with a full memory."""

    def text(self, value: float) -> str:
        """A return with the digits that matter at its size."""
        return number(value, 1 if max(abs(self.returns.best), abs(self.returns.worst)) >= 10 else 3)

    def cells(self) -> list[str]:
        """The row of the table, as text."""
        r, several = self.returns, len(self.returns.values) > 1
        interval = f"{self.text(r.low)} to {self.text(r.high)}" if several else ""
        steps = "" if self.steps_to_threshold is None else f"{self.steps_to_threshold:,.0f}"
        return [
            self.task, self.core, f"{self.parameters:,}", str(len(r.values)), self.text(r.iqm), interval,
            self.text(r.worst), self.text(r.best), f"{self.solved}/{len(r.values)}", steps,
            f"{self.speed:,.0f}", f"{self.minutes:.1f}", f"{self.latency:.3f}",
        ]  # fmt: skip


def rows(runs: dict[BenchRun, Record]) -> list[CoreResult]:
    """Results by task, the best core first."""
    found = []
    for task in dict.fromkeys(job.task for job in runs):
        cores = dict.fromkeys(job.core for job in runs if job.task == task)
        of_task = [
            _row([(job, run) for job, run in runs.items() if (job.task, job.core) == (task, core)]) for core in cores
        ]
        found += sorted(of_task, key=lambda row: -row.returns.iqm)
    return found


def _row(members: Sequence[tuple[BenchRun, Record]]) -> CoreResult:
    job = members[0][0]
    records = [record for _, record in members]
    (group,) = compare(records, group_by="experiment.name").groups
    finals = [record.last for record in records if record.last is not None]
    return CoreResult(
        task=job.task.name,
        core=job.core.name,
        parameters=job.parameters,
        returns=Scores.of([finals]),
        solved=group.reached,
        steps_to_threshold=group.steps_to_threshold,
        speed=statistics.median(_speed(record) for record in records),
        minutes=statistics.median(record.seconds or 0.0 for record in records) / 60,
        latency=decision_ms(job.config),
    )


def _speed(record: Record) -> float:
    """Steps per second of CPU time, median over rows; rows with an evaluation count only if all rows have one."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    steps = 0.0
    for row in history.rows(record.folder, CPU):
        now = history.number(row["env_steps"])
        rates[EVAL_RETURN in row].append((now - steps) / history.number(row[CPU]))
        steps = now
    found = rates[False] or rates[True]
    return statistics.median(found) if found else math.nan


def table(found: Sequence[CoreResult]) -> TextTable:
    """The table of all results; the best IQM of each task is bold."""
    top = {row.task: row.text(row.returns.iqm) for row in reversed(found)}  # rows come best first
    best = {i for i, row in enumerate(found) if row.text(row.returns.iqm) == top[row.task]}
    column = HEAD.index("IQM")
    return TextTable(HEAD, [row.cells() for row in found], [False, False] + [True] * (len(HEAD) - 2),
                 frozenset((i, column) for i in best))  # fmt: skip
