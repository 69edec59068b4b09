"""What a benchmark found: one row per task and core, pictures, and sentences computed from the rows."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ludus.bench.memory.jobs import Job
from ludus.bench.memory.latency import decision_ms
from ludus.metrics.names import EVAL_RETURN
from ludus.metrics.text import number
from ludus.runs import history
from ludus.runs.compare import Scores, compare
from ludus.runs.export import Table
from ludus.runs.record import Record

CPU = "train/time/cpu_seconds"
HEAD = (
    "task", "core", "parameters", "n", "IQM", "95 % interval", "min", "max", "solved", "steps to threshold",
    "steps/s", "minutes", "ms per decision", "peak MB",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One core on one task, over its seeds."""

    task: str
    core: str
    remembers: bool
    parameters: int
    returns: Scores
    """Of the last evaluation of each run."""
    solved: int
    """Runs that reached the threshold at some evaluation."""
    steps_to_threshold: float | None
    speed: float
    """Environment steps per second of processor time while training, median."""
    minutes: float
    latency: float
    """Milliseconds for one decision with a full memory, median."""
    memory: float
    """Most memory the process held in MB, median."""

    def cells(self) -> list[str]:
        """As text."""
        r, several = self.returns, len(self.returns.values) > 1
        precision = 1 if max(abs(r.best), abs(r.worst)) >= 10 else 3
        interval = f"{number(r.low, precision)} to {number(r.high, precision)}" if several else ""
        steps = "" if self.steps_to_threshold is None else f"{self.steps_to_threshold:,.0f}"
        return [
            self.task, self.core, f"{self.parameters:,}", str(len(r.values)), number(r.iqm, precision), interval,
            number(r.worst, precision), number(r.best, precision), f"{self.solved}/{len(r.values)}", steps,
            f"{self.speed:,.0f}", f"{self.minutes:.1f}", f"{self.latency:.3f}", f"{self.memory:,.0f}",
        ]  # fmt: skip


def rows(runs: dict[Job, Record]) -> list[Row]:
    """Tasks in their order, the best core of each first."""
    found = []
    for task in dict.fromkeys(job.task for job in runs):
        cores = dict.fromkeys(job.core for job in runs if job.task == task)
        of_task = [
            _row([(job, run) for job, run in runs.items() if (job.task, job.core) == (task, core)]) for core in cores
        ]
        found += sorted(of_task, key=lambda row: -row.returns.iqm)
    return found


def _row(members: Sequence[tuple[Job, Record]]) -> Row:
    job = members[0][0]
    records = [record for _, record in members]
    (group,) = compare(records, group_by="experiment.name").groups
    finals = [record.last for record in records if record.last is not None]
    return Row(
        task=job.task.name,
        core=job.core.name,
        remembers=job.core.remembers,
        parameters=job.parameters,
        returns=Scores.of([finals]),
        solved=group.reached,
        steps_to_threshold=group.steps_to_threshold,
        speed=statistics.median(_speed(record) for record in records),
        minutes=statistics.median(record.seconds or 0.0 for record in records) / 60,
        latency=decision_ms(job.config),
        memory=statistics.median(_peak(record) for record in records),
    )


def _speed(record: Record) -> float:
    """Of the median row in processor time, which no other program on the machine changes.

    A policy that lives long has long evaluations: rows with one count only if there are no others.
    """
    rates: dict[bool, list[float]] = {False: [], True: []}
    steps = 0.0
    for row in history.rows(record.folder, CPU):
        now = history.number(row["env_steps"])
        rates[EVAL_RETURN in row].append((now - steps) / history.number(row[CPU]))
        steps = now
    found = rates[False] or rates[True]
    return statistics.median(found) if found else math.nan


def _peak(record: Record) -> float:
    return max(history.curve(record.folder, "train/system/peak_rss_mb")[1], default=math.nan)


def as_data(found: Sequence[Row]) -> list[dict[str, Any]]:
    """Plain data, every number as it is."""
    return [dataclasses.asdict(row) for row in found]


def table(found: Sequence[Row]) -> Table:
    """For markdown, CSV and LaTeX; the best IQM of each task stands out."""
    best = {i for i, row in enumerate(found) if i == 0 or found[i - 1].task != row.task}
    column = HEAD.index("IQM")
    return Table(HEAD, [row.cells() for row in found], [False, False] + [True] * (len(HEAD) - 2),
                 frozenset((i, column) for i in best))  # fmt: skip


def sentences(found: Sequence[Row]) -> list[str]:
    """What can be said, and how surely; nothing that is not in the rows."""
    said = []
    for task in dict.fromkeys(row.task for row in found):
        of_task = [row for row in found if row.task == task]
        said += [_best(task, of_task), *_control(of_task), *_cost(of_task)]
    return said


def _best(task: str, of_task: Sequence[Row]) -> str:
    first, *others = of_task
    text = f"On {task}, {first.core} has the highest final return (IQM {number(first.returns.iqm, 1)}"
    if len(first.returns.values) < 2:
        return f"{text}, one seed)."
    text += f", 95 % interval {number(first.returns.low, 1)} to {number(first.returns.high, 1)})"
    equal = [row.core for row in others if row.returns.high >= first.returns.low]
    return f"{text}; the intervals of {_list(equal)} overlap its own." if equal else f"{text}, clear of all others."


def _control(of_task: Sequence[Row]) -> list[str]:
    without = [row for row in of_task if not row.remembers]
    return [f"Without memory ({row.core}) it is {number(row.returns.iqm, 1)}." for row in without]


def _cost(of_task: Sequence[Row]) -> list[str]:
    able = [row for row in of_task if row.remembers]
    if len(able) < 2:
        return []
    fast, slow = max(able, key=lambda row: row.speed), min(able, key=lambda row: row.speed)
    quick, late = min(able, key=lambda row: row.latency), max(able, key=lambda row: row.latency)
    large = max(able, key=lambda row: row.memory)
    return [
        f"{fast.core} trains fastest at {fast.speed:,.0f} steps/s, {fast.speed / slow.speed:.1f} times {slow.core}, "
        f"the slowest; a decision takes {quick.latency:.2f} ms with {quick.core} and {late.latency:.2f} ms with "
        f"{late.core}; {large.core} held the most memory, {large.memory:,.0f} MB."
    ]


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
