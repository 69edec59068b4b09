"""A learning rate for each core: the one that a task ships with was found with one core, or without any."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ludus.archive import history
from ludus.archive.record import Record
from ludus.bench.memory.jobs import BenchRun
from ludus.bench.memory.matching import written
from ludus.config.compose import dump, load
from ludus.metrics.names import EVAL_RETURN
from ludus.reports.export import TextTable
from ludus.text import number

EVALUATIONS = 8
"""Evaluations of a tuning run; those of its second half count."""
HEAD = ("task", "core", "times the task's lr", "mean", "seeds", "chosen")


@dataclass(frozen=True)
class Tuning:
    """Which learning rates are tried for every core, on seeds of their own."""

    factors: Sequence[float]
    """Times the learning rate of the task's config."""
    seeds: Sequence[int]
    share: float
    """Budget of a tuning run, as a share of a run's."""


@dataclass(frozen=True)
class Trial:
    """One factor of one core on one task."""

    task: str
    core: str
    factor: float
    returns: tuple[float, ...]
    """Mean return of the evaluations in the second half, by seed."""

    @property
    def mean(self) -> float:
        """What the best factor is chosen by."""
        return statistics.fmean(self.returns)


def rate(spec: str, overrides: Iterable[str], factor: float) -> tuple[str, ...]:
    """The override that multiplies a config's learning rate; schedules keep their shape."""
    if factor == 1:
        return ()
    lr = dump(load(spec, list(overrides)).config)["algorithm"]["lr"]
    scaled = {**lr, **{end: lr[end] * factor for end in ("start", "end")}} if isinstance(lr, dict) else lr * factor
    return (f"algorithm.lr={written(scaled)}",)


def trials(runs: Mapping[BenchRun, Record], factors: Mapping[BenchRun, float]) -> list[Trial]:
    """The finished tuning runs by task, core and factor."""
    found: dict[tuple[str, str, float], list[float]] = {}
    for job, record in runs.items():
        steps, returns = history.curve(record.folder, EVAL_RETURN)
        late = [value for step, value in zip(steps, returns, strict=True) if step > steps[-1] / 2]
        found.setdefault((job.task.name, job.core.name, factors[job]), []).append(statistics.fmean(late))
    return [Trial(*key, tuple(returns)) for key, returns in found.items()]


def chosen(found: Sequence[Trial]) -> dict[tuple[str, str], float]:
    """The best factor of each task and core; of equal ones that which changes less."""
    best: dict[tuple[str, str], Trial] = {}
    for trial in sorted(found, key=lambda trial: (-trial.mean, max(trial.factor, 1 / trial.factor))):
        best.setdefault((trial.task, trial.core), trial)
    return {key: trial.factor for key, trial in best.items()}


def table(found: Sequence[Trial]) -> TextTable:
    """Every trial, and which of them was chosen."""
    best = chosen(found)
    rows = []
    for trial in found:
        digits = 1 if abs(trial.mean) >= 10 else 3
        seeds = ", ".join(number(value, digits) for value in trial.returns)
        taken = "yes" if best[trial.task, trial.core] == trial.factor else ""
        rows.append([trial.task, trial.core, f"{trial.factor:g}", number(trial.mean, digits), seeds, taken])
    return TextTable(HEAD, rows, [False, False, True, True, False, False])
