"""The results of a memory benchmark: one row per task and core."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ludus.acting.numpy_actor import make_actor
from ludus.archive import history
from ludus.archive.record import Record
from ludus.bench.memory.jobs import BenchRun
from ludus.bench.memory.matching import spaces_of
from ludus.config.schema import ExperimentConfig
from ludus.metrics.names import EVAL_RETURN
from ludus.networks.policy import PolicyNetwork
from ludus.reports.compare import compare
from ludus.reports.export import TextTable
from ludus.reports.scores import Scores
from ludus.reports.statistics import stratified_bootstrap
from ludus.text import number
from ludus.types import zeros

CPU = "train/time/cpu_seconds"
FILLED, TIMED = 128, 200
"""Untimed steps of a decision, since a transformer reads more at each step until its memory is full; timed steps."""
HEAD = (
    "task", "core", "parameters", "lr", "n", "IQM", "95 % interval", "min", "max", "solved", "steps to threshold",
    "steps/s of CPU", "minutes", "ms per decision",
)  # fmt: skip


Interval = tuple[float, float] | None


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
    speed_interval: Interval = None
    """95 % bootstrap interval of the median, over runs; likewise the next, and the last over decisions."""
    minutes_interval: Interval = None
    latency_interval: Interval = None
    lr: float = math.nan
    """Learning rate at the start."""

    def text(self, value: float) -> str:
        """A return with the digits that matter at its size."""
        return number(value, 1 if max(abs(self.returns.best), abs(self.returns.worst)) >= 10 else 3)

    def cells(self) -> list[str]:
        """The row of the table, as text."""
        r, several = self.returns, len(self.returns.values) > 1
        interval = f"{self.text(r.low)} to {self.text(r.high)}" if several else ""
        steps = "" if self.steps_to_threshold is None else f"{self.steps_to_threshold:,.0f}"
        return [
            self.task, self.core, f"{self.parameters:,}", f"{self.lr:g}", str(len(r.values)),
            self.text(r.iqm), interval, self.text(r.worst), self.text(r.best), f"{self.solved}/{len(r.values)}", steps,
            _measured(self.speed, self.speed_interval, ",.0f"), _measured(self.minutes, self.minutes_interval, ".1f"),
            _measured(self.latency, self.latency_interval, ".3f"),
        ]  # fmt: skip


def _measured(value: float, interval: Interval, form: str) -> str:
    """`3,087 (2,990 to 3,140)`."""
    return f"{value:{form}}" + (f" ({interval[0]:{form}} to {interval[1]:{form}})" if interval else "")


def _median(values: Sequence[float]) -> tuple[float, Interval]:
    """The median and its interval, which a single value does not have."""
    interval = stratified_bootstrap([values], np.median) if len(values) > 1 else None
    return statistics.median(values), interval


def rows(runs: dict[BenchRun, Record]) -> list[CoreResult]:
    """Results by task, the best core first."""
    members: dict[tuple[str, str], list[BenchRun]] = {}
    for job in runs:
        members.setdefault((job.task.name, job.core.name), []).append(job)
    found = [_row(jobs[0], [runs[job] for job in jobs]) for jobs in members.values()]
    tasks = [task for task, _ in members]
    return sorted(found, key=lambda row: (tasks.index(row.task), -row.returns.iqm))


def _row(job: BenchRun, records: Sequence[Record]) -> CoreResult:
    (group,) = compare(records, group_by="experiment.name").groups
    finals = [record.last for record in records if record.last is not None]
    speed, speed_interval = _median([_speed(record) for record in records])
    minutes, minutes_interval = _median([(record.seconds or 0.0) / 60 for record in records])
    latency, latency_interval = _median(decision_ms(job.config))
    return CoreResult(
        task=job.task.name,
        core=job.core.name,
        parameters=job.parameters,
        returns=Scores.of([finals]),
        solved=group.reached,
        steps_to_threshold=group.steps_to_threshold,
        speed=speed,
        minutes=minutes,
        latency=latency,
        speed_interval=speed_interval,
        minutes_interval=minutes_interval,
        latency_interval=latency_interval,
        lr=job.config.algorithm.config.lr.start,
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


def decision_ms(config: ExperimentConfig) -> list[float]:
    """Milliseconds of `TIMED` actions for one environment, on one thread, after `FILLED` steps."""
    spaces, threads = spaces_of(config), torch.get_num_threads()
    policy = PolicyNetwork(config.network, spaces)
    actor = make_actor(policy.trunk, policy.heads)
    obs, state, times = zeros(spaces.observation, 1), actor.initial_state(1), []
    torch.set_num_threads(1)
    try:
        for step in range(FILLED + TIMED):
            first, begin = np.full(1, step == 0), time.perf_counter()
            outputs, state = actor(obs, state, first, None)
            outputs("actor")
            times.append(time.perf_counter() - begin)
    finally:
        torch.set_num_threads(threads)
    return [1e3 * seconds for seconds in times[FILLED:]]


def trade_offs(found: Sequence[CoreResult]) -> list[str]:
    """What the data say about each task: the best and the worst core by return, speed and decision, ties named."""
    said = []
    for task in dict.fromkeys(row.task for row in found):
        rows = [row for row in found if row.task == task]
        returns = [(row.returns.iqm, row.text(row.returns.iqm), row.core) for row in rows]
        speeds = [(row.speed, f"{row.speed:,.0f} steps/s of CPU", row.core) for row in rows]
        decisions = [(-row.latency, f"{row.latency:.3f} ms", row.core) for row in rows]
        parts = {("highest return", "lowest"): returns, ("fastest training", "slowest"): speeds}
        parts |= {("fastest decision", "slowest"): decisions}
        words = [f"{top} {_extreme(facts, max)}, {low} {_extreme(facts, min)}" for (top, low), facts in parts.items()]
        said.append(f"{task}: {'; '.join(words)}")
    return said


def _extreme(facts: Sequence[tuple[float, str, str]], pick: Callable[..., tuple[float, str, str]]) -> str:
    text = pick(facts)[1]
    return f"{', '.join(core for _, other, core in facts if other == text)} ({text})"


def table(found: Sequence[CoreResult]) -> TextTable:
    """The table of all results; the best IQM of each task is bold."""
    top = {row.task: row.text(row.returns.iqm) for row in reversed(found)}  # rows come best first
    best = {i for i, row in enumerate(found) if row.text(row.returns.iqm) == top[row.task]}
    column = HEAD.index("IQM")
    return TextTable(HEAD, [row.cells() for row in found], [False, False] + [True] * (len(HEAD) - 2),
                 frozenset((i, column) for i in best))  # fmt: skip
