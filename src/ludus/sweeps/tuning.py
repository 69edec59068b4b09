"""Tuning: a sweep over what an algorithm says is worth searching, and an honest account of what it gained.

Reading order: spec_of -> verdict -> write_variant.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ludus import __version__, files
from ludus.archive.record import read
from ludus.config.aliases import canonical
from ludus.config.compose import load, search_path
from ludus.config.groups import EnvironmentFile, environment_path
from ludus.config.read import to_yaml
from ludus.config.schedule import Schedule
from ludus.config.validate import select
from ludus.errors import ConfigError
from ludus.reports.run_metrics import steps_to_threshold
from ludus.reports.statistics import stratified_bootstrap
from ludus.sweeps.forms import build
from ludus.sweeps.grammar import parameter_of
from ludus.sweeps.ledger import Ledger
from ludus.sweeps.space import Parameter
from ludus.sweeps.spec import SweepSpec
from ludus.text import points, safe_name

FRESH = 1_001
"""First seed of the confirmation; the search uses 1, 2, ..."""
EVALUATIONS = 10
"""Least evaluations of a run: that often the pruner can decide."""
COARSE, FINE = 0.3, 0.2
"""Parts of a tuning that are a coarse grid and a fine search near the best; the rest is the sampler's."""
STAGED = 10
"""Least trials of a tuning in stages."""


def spec_of(
    base: str, overrides: Sequence[str], steps: int | None, seeds: int, fresh: int, options: Mapping[str, Any]
) -> SweepSpec:
    """The sweep that a tuning is; settings with several values replace what the algorithm says is worth searching."""
    own = {word: parameter_of(word) for word in overrides}
    fixed = [word for word, parameter in own.items() if parameter is None]
    searched = [parameter for parameter in own.values() if parameter is not None] or space(base, fixed)
    trials = options["trials"]
    staged = trials >= STAGED and options["sampler"] != "cmaes"
    fields: dict[str, Any] = {
        **options,
        "name": options["name"] or f"tune-{safe_name(base)}"[:24],
        "base": base,
        "overrides": (*fixed, *steps_of(base, fixed, steps)),
        "parameters": searched,
        "method": "bayes",
        "stages": {"coarse": round(COARSE * trials), "fine": round(FINE * trials)} if staged else None,
        "seeds": tuple(range(1, seeds + 1)),
        "begin_as_is": True,
        "confirmation": {"trials": 1, "seeds": tuple(range(FRESH, FRESH + fresh))},
    }
    return build(fields, "ludus tune")


def space(base: str, overrides: Sequence[str]) -> list[Parameter]:
    """What the algorithm of a spec says is worth searching; a schedule keeps its shape."""
    config = load(base, overrides).config
    own = config.algorithm.config
    if not own.search:
        raise ConfigError(
            base, f"{config.algorithm.name} has nothing to tune", "name settings: ludus sweep ... key=a,b"
        )
    found = []
    for field, text in own.search.items():
        shape = ".start" if _keeps_shape(base, overrides, field, getattr(own, field)) else ""
        parameter = parameter_of(f"algorithm.{field}{shape}={text}")
        assert parameter is not None
        found.append(parameter)
    return found


def _keeps_shape(base: str, overrides: Sequence[str], field: str, value: object) -> bool:
    """Whether the start of a schedule can be searched; of one that the config does not write, only the whole."""
    if not isinstance(value, Schedule) or value.start == value.end:
        return False
    try:
        load(base, [*overrides, f"algorithm.{field}.start={value.start}"])
    except ConfigError:
        return False
    return True


def steps_of(base: str, overrides: Sequence[str], steps: int | None) -> list[str]:
    """Overrides for a budget, and for evaluations often enough to judge a run by."""
    unit = "updates" if load(base, overrides).config.training.offline else "steps"
    budget = "total_updates" if unit == "updates" else "total_timesteps"
    words = [] if steps is None else [f"training.{budget}={steps}"]
    training = load(base, [*overrides, *words]).config.training
    every, total = getattr(training.evaluation, f"every_{unit}"), training.budget.total
    if every and total // every >= EVALUATIONS:
        return words
    return [*words, f"training.evaluation.every_{unit}={max(1, total // EVALUATIONS)}"]


@dataclass(frozen=True)
class Reached:
    """When the fresh runs of a candidate reach the threshold."""

    threshold: float
    runs: int
    steps: tuple[float, ...]
    """Of the runs that do."""
    budget: int

    @property
    def mean(self) -> float:
        """Steps to the threshold; a run that does not reach it counts with its whole budget, which flatters it."""
        return (sum(self.steps) + self.budget * (self.runs - len(self.steps))) / self.runs

    def words(self) -> str:
        """`12,288 (5 of 5 runs)`: the median of those that do."""
        median = f"{statistics.median(self.steps):,.0f}" if self.steps else "never"
        return f"{median} ({len(self.steps)} of {self.runs} runs)"

    def lines(self, base: Reached) -> list[str]:
        """This one against the base."""
        verdict = "sooner" if self.mean < base.mean else "not sooner"
        return [
            f"  steps to {self.threshold:g}: {self.words()} against {base.words()}",
            f"  and with the whole budget for the other runs, in the mean: {self.mean:,.0f} against {base.mean:,.0f}: "
            f"{verdict}",
        ]


@dataclass(frozen=True)
class Verdict:
    """The best trial against the settings as they were."""

    number: int
    metric: str
    searched: float
    """By how much it was better on the seeds of the search."""
    fresh: float
    """By how much it is better on fresh seeds."""
    low: float
    """Lower end of the 95 % bootstrap interval of that."""
    high: float
    seeds: int
    base_value: float
    value: float
    base_reached: Reached | None
    """When both reach the threshold; None if there is none."""
    reached: Reached | None

    @property
    def survives(self) -> bool:
        """Whether there is a gain on fresh seeds."""
        return self.fresh > 0

    def lines(self) -> list[str]:
        """What can be said about it."""
        told = [
            f"trial {self.number} against the settings as they are, {self.metric}:",
            f"  on the seeds of the search better by {points(self.searched)}",
            f"  on {self.seeds} fresh seeds {points(self.value)} against {points(self.base_value)}: "
            f"{'better' if self.fresh > 0 else 'not better'}, by {points(self.fresh)} "
            f"(95 % interval {points(self.low)} to {points(self.high)})",
        ]
        if self.reached is not None and self.base_reached is not None:
            told += self.reached.lines(self.base_reached)
        if self.searched <= 0:
            return [*told, "the search found nothing better than the settings as they are: keep them"]
        if not self.survives:
            return [*told, "nothing of the gain survives on fresh seeds: keep the settings as they are"]
        part = self.fresh / self.searched
        share = f"{f'{part:.0%} of the' if part < 1 else 'the whole'} gain survives on fresh seeds"
        unsure = "" if self.low > 0 else ", but the interval includes 0: it may be chance"
        return [*told, share + unsure]


def verdict(ledger: Ledger) -> Verdict | None:
    """What the fresh seeds say; None if the search or the confirmation is not complete."""
    spec, known = ledger.spec, ledger.judged()
    again, order = spec.confirmation, ledger.plan.ranking(known)
    if again is None or not order or known[0].value is None:
        return None
    best, sign = order[0], 1 if spec.metric.goal == "maximize" else -1
    pairs = [(ledger.results.get((best, seed)), ledger.results.get((0, seed))) for seed in again.seeds]
    both = [(one.value, base.value) for one, base in pairs if one is not None and base is not None]
    value = known[best].value
    if not both or value is None:
        return None
    gains = [sign * (one - base) for one, base in both]
    low, high = stratified_bootstrap([gains], np.mean) if len(gains) > 1 else (gains[0], gains[0])
    return Verdict(
        number=best,
        metric=spec.metric.name,
        searched=sign * (value - known[0].value),
        fresh=statistics.fmean(gains),
        low=low,
        high=high,
        seeds=len(both),
        base_value=statistics.fmean(base for _, base in both),
        value=statistics.fmean(one for one, _ in both),
        base_reached=_reached(ledger, 0),
        reached=_reached(ledger, best),
    )


def _reached(ledger: Ledger, number: int) -> Reached | None:
    assert ledger.spec.confirmation is not None
    folders = [ledger.folder_of((number, seed)) for seed in ledger.spec.confirmation.seeds]
    records = [record for folder in folders if folder is not None and (record := read(folder)) is not None]
    threshold = next((record.threshold for record in records if record.threshold is not None), None)
    if threshold is None:
        return None
    steps = tuple(found for record in records if (found := steps_to_threshold(record)) is not None)
    return Reached(threshold, len(records), steps, ledger.plan.budget(ledger.values(ledger.trials[number])))


# ---- --write -------------------------------------------------------------------------------------


def target_file(target: str, base: str) -> tuple[Path, str, str]:
    """Where a variant goes, the text it is added to and its name; refused if it exists or cannot be there."""
    env, _, variant = target.rpartition(":")
    if not env or not variant.replace("_", "").isalnum() or variant.startswith("_"):
        raise ConfigError(f"--write {target}", "is not Env:variant", "write --write CartPole-v1:ppo_tuned")
    dirs = search_path()
    known = environment_path(env, dirs)
    if known is None or ":" not in base or environment_path(base.rpartition(":")[0], dirs) != known:
        problem = "a variant goes into the file of the environment that was tuned"
        raise ConfigError(
            f"--write {target}", problem, f"tune an Env:variant of {env}, or save ludus sweep best by hand"
        )
    if variant in EnvironmentFile(known, dirs).variants:
        raise ConfigError(f"--write {target}", "exists already", "choose another name")
    return Path.cwd() / "configs" / "environments" / known.name, known.read_text(encoding="utf-8"), variant


def write_variant(ledger: Ledger, found: Verdict, target: str) -> Path:
    """Add the winner to the environment's file below ./configs, after a copy of the shipped one if there is none."""
    path, text, variant = target_file(target, ledger.spec.base)
    data = ledger.plan.resolve(ledger.trials[found.number].latent).data
    block: dict[str, Any] = {"extends": ledger.spec.base.rpartition(":")[2]}
    block["description"] = f"tuned from {ledger.spec.base}"
    for one in ledger.spec.parameters:
        path_of = canonical(tuple(one.key.lstrip("+").split(".")))[0]
        inner = block
        for part in path_of[:-1]:
            inner = inner.setdefault(part, {})
        inner[path_of[-1]] = select(data, path_of)
    told = [
        f"ludus tune {ledger.spec.base}, sweep {ledger.spec.name}, trial {found.number} of {ledger.plan.trials}; "
        f"Ludus {__version__}, {datetime.now(UTC):%Y-%m-%d}",
        *(["with " + " ".join(ledger.spec.overrides)] if ledger.spec.overrides else []),
        *found.lines(),
    ]
    comment = "".join(f"# {line}\n" for line in told)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, f"{text.rstrip()}\n\n{comment}{to_yaml({variant: block})}")
    return path
