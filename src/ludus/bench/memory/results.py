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
from ludus.bench.memory.tasks import CORES
from ludus.metrics.names import EVAL_RETURN
from ludus.reports.compare import Scores, compare
from ludus.reports.export import Table
from ludus.runs import history
from ludus.runs.record import Record
from ludus.text import number

CPU = "train/time/cpu_seconds"
HEAD = (
    "task", "core", "parameters", "n", "IQM", "95 % interval", "min", "max", "solved", "steps to threshold",
    "steps/s of CPU", "minutes", "ms per decision", "peak MB",
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

    def text(self, value: float) -> str:
        """A return with as many digits as mean something."""
        return number(value, 1 if max(abs(self.returns.best), abs(self.returns.worst)) >= 10 else 3)

    def cells(self) -> list[str]:
        """As text."""
        r, several = self.returns, len(self.returns.values) > 1
        interval = f"{self.text(r.low)} to {self.text(r.high)}" if several else ""
        steps = "" if self.steps_to_threshold is None else f"{self.steps_to_threshold:,.0f}"
        return [
            self.task, self.core, f"{self.parameters:,}", str(len(r.values)), self.text(r.iqm), interval,
            self.text(r.worst), self.text(r.best), f"{self.solved}/{len(r.values)}", steps,
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
    top = {row.task: row.text(row.returns.iqm) for row in reversed(found)}  # rows come best first
    best = {i for i, row in enumerate(found) if row.text(row.returns.iqm) == top[row.task]}
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
    first = of_task[0]
    top = [row for row in of_task if row.text(row.returns.iqm) == first.text(first.returns.iqm)]
    verb = "has" if len(top) == 1 else "share"
    text = f"On {task}, {_list([row.core for row in top])} {verb} the highest final return ("
    text += f"IQM {first.text(first.returns.iqm)}"
    if len(first.returns.values) < 2:
        return f"{text}, one seed)."
    low, high = min(row.returns.low for row in top), max(row.returns.high for row in top)
    text += f", 95 % interval {first.text(low)} to {first.text(high)})"
    equal = [row.core for row in of_task if row not in top and row.returns.high >= low]
    if equal:
        return f"{text}; the interval{'s' * (len(equal) > 1)} of {_list(equal)} overlap{'s' * (len(equal) == 1)} it."
    return f"{text}, clear of all others."


def _control(of_task: Sequence[Row]) -> list[str]:
    without = [row for row in of_task if not row.remembers]
    return [f"Without memory ({row.core}) it is {row.text(row.returns.iqm)}." for row in without]


def _cost(of_task: Sequence[Row]) -> list[str]:
    able = [row for row in of_task if CORES[row.core].memory != "none"]
    if len(able) < 2:
        return []
    fast, slow = max(able, key=lambda row: row.speed), min(able, key=lambda row: row.speed)
    quick, late = min(able, key=lambda row: row.latency), max(able, key=lambda row: row.latency)
    large = max(able, key=lambda row: row.memory)
    return [
        f"Of the cores {fast.core} trains fastest at {fast.speed:,.0f} steps per second of processor time, "
        f"{fast.speed / slow.speed:.1f} times {slow.core}, the slowest; a decision takes {quick.latency:.2f} ms with "
        f"{quick.core} and {late.latency:.2f} ms with {late.core}; {large.core} held the most memory, "
        f"{large.memory:,.0f} MB."
    ]


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
