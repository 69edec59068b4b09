"""Compares groups of runs: runs that differ only in their seed form one group, with statistics over its seeds."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ludus.archive import history, query
from ludus.archive.record import ALIASES, MISSING, Record, paths, value_at
from ludus.errors import ConfigError
from ludus.metrics.names import EVAL_RETURN, RETURN
from ludus.reports.columns import NUMBERS, config_text
from ludus.reports.statistics import iqm, stratified_bootstrap
from ludus.text import did_you_mean

IGNORED = ("experiment.seed", "experiment.name", "experiment.description", "experiment.tags", "logging.*",
           "training.checkpoints.*", "training.evaluation.video.*")  # fmt: skip
"""Config values that do not separate groups: they change no learning curve."""
SHORT = {"loss": "train/loss/total", "train_reward": RETURN, "entropy": "train/policy/entropy",
         "kl": "train/policy/kl", "fps": "train/time/fps_total"}  # fmt: skip
"""Short names of metrics."""


@dataclass(frozen=True)
class Scores:
    """One number per run of a group, and its statistics."""

    values: tuple[float, ...]
    mean: float
    median: float
    iqm: float
    low: float
    """Lower end of the 95 % bootstrap interval of the IQM; NaN for a single run."""
    high: float
    best: float
    worst: float

    @classmethod
    def of(cls, strata: Sequence[Sequence[float]]) -> Scores:
        """Statistics of the values of all strata (environments)."""
        values = [value for stratum in strata for value in stratum]
        low, high = stratified_bootstrap(strata) if len(values) > 1 else (math.nan, math.nan)
        mean, median = statistics.fmean(values), statistics.median(values)
        return cls(tuple(values), mean, median, float(iqm(values)), low, high, max(values), min(values))

    def data(self) -> dict[str, object]:
        """Plain data for `--json`."""
        interval = None if math.isnan(self.low) else [self.low, self.high]
        averages: dict[str, object] = {"mean": self.mean, "median": self.median, "iqm": self.iqm, "iqm_ci95": interval}
        return averages | {"min": self.worst, "max": self.best, "values": list(self.values)}


@dataclass(frozen=True)
class RunGroup:
    """Runs that repeat the same experiment."""

    label: str
    runs: tuple[Record, ...]
    scores: dict[str, Scores]
    """By metric; a metric that no run of the group has is missing."""
    steps_to_threshold: float | None
    """Median over the runs that reached the threshold."""
    reached: int
    """Number of runs that reached the threshold."""
    seconds: float | None
    """Mean wall time."""

    def data(self) -> dict[str, object]:
        """Plain data for `--json`."""
        return {
            "label": self.label,
            "n": len(self.runs),
            "runs": [record.id for record in self.runs],
            "seeds": [record.seed for record in self.runs],
            "metrics": {name: scores.data() for name, scores in self.scores.items()},
            "steps_to_threshold": self.steps_to_threshold,
            "reached_threshold": self.reached,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Comparison:
    """The groups, best first, and the config values in which they differ."""

    common: str
    """The spec that all groups share."""
    metrics: tuple[str, ...]
    groups: tuple[RunGroup, ...]
    differences: dict[str, tuple[str, ...]]
    """Config path -> its value in each group."""
    notes: tuple[str, ...]

    def __str__(self) -> str:
        from ludus.reports.export import export_comparison  # it imports this module

        return export_comparison(self, "markdown") + "".join(f"note: {note}\n" for note in self.notes)

    _repr_markdown_ = __str__

    def data(self) -> dict[str, object]:
        """Plain data for `--json`."""
        groups = [group.data() for group in self.groups]
        return {"common": self.common, "groups": groups, "differences": self.differences, "notes": self.notes}


def compare(records: Sequence[Record], *, metrics: Sequence[str] = ("reward",), group_by: str = "config") -> Comparison:
    """Group runs by `config` (all but the seed), `spec`, or any field or config path."""
    if not records:
        raise ConfigError("compare", "there is no run to compare", "ludus list shows what there is")
    if group_by not in ("config", "spec"):
        query.check_key(group_by, records, f"--group-by {group_by}")
    keys = {metric: metric_key(metric, records) for metric in metrics}
    members: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: (record.seed is None, record.seed, record.started or "")):
        members.setdefault(_group_key(record, group_by), []).append(record)
    grouped = list(members.values())
    common, labels = _labels(grouped) if group_by == "config" else ("", list(members))
    groups = [_group(label, runs, keys) for label, runs in zip(labels, grouped, strict=True)]
    first = metrics[0]
    groups.sort(key=lambda group: -group.scores[first].iqm if first in group.scores else math.inf)
    differences = _differences([group.runs for group in groups])
    return Comparison(common, tuple(metrics), tuple(groups), differences, tuple(_notes(groups, keys)))


def metric_key(metric: str, records: Sequence[Record]) -> str:
    """The column of metrics.jsonl, or the field, that a name means: `reward`, `loss`, `policy/kl` or a full name."""
    if metric in ("reward", "best"):
        return EVAL_RETURN if any(record.reward is not None for record in records) else RETURN
    if ALIASES.get(metric, metric) in NUMBERS:
        return ALIASES.get(metric, metric)
    rows = [row for record in records for row in history.sampled(record.folder, 8)]
    known = history.metric_names(rows)
    wanted = SHORT.get(metric, metric)
    if wanted in known:
        return wanted
    ends = [name for name in known if name.endswith(f"/{wanted}")]
    if len(ends) == 1:
        return ends[0]
    remedy = f"one of {', '.join(ends)}" if ends else did_you_mean(metric, ["reward", *SHORT, *known])
    raise ConfigError(f"--metrics {metric}", "no run has it" if not ends else "fits several metrics", remedy)


def score(record: Record, metric: str, key: str) -> float | None:
    """The number of one run: its best evaluation for `reward`, a field, or the last value of a metric."""
    if metric in ("reward", "best") and key == EVAL_RETURN:
        return record.reward
    if key in NUMBERS:
        value = record.get(key)
        return None if value is None else history.number(value)
    _, values = history.curve(record.folder, key)
    if not values:
        return None
    return max(values) if metric in ("reward", "best") else values[-1]


def _group(label: str, runs: Sequence[Record], keys: dict[str, str]) -> RunGroup:
    scores = {}
    for metric, key in keys.items():
        strata: dict[str | None, list[float]] = {}
        for record in runs:
            value = score(record, metric, key)
            if value is not None:
                strata.setdefault(record.environment, []).append(value)
        if strata:
            scores[metric] = Scores.of(list(strata.values()))
    reached = [steps for record in runs if (steps := _steps_to_threshold(record)) is not None]
    steps = statistics.median(reached) if reached else None
    times = [record.seconds for record in runs if record.seconds is not None]
    return RunGroup(label, tuple(runs), scores, steps, len(reached), statistics.fmean(times) if times else None)


def _steps_to_threshold(record: Record) -> float | None:
    if record.threshold is None:
        return None
    points = zip(*history.curve(record.folder, EVAL_RETURN), strict=True)
    return next((step for step, value in points if value >= record.threshold), None)


def _group_key(record: Record, group_by: str) -> str:
    """Equal for runs of one group; a config value that an older Ludus did not have counts as null."""
    if group_by != "config":
        return query.shown(record.get(group_by)) or "(none)"
    values = {path: value_at(record.config, path) for path in paths(record.config) if not _ignored(path)}
    return json.dumps({path: value for path, value in values.items() if value is not None}, sort_keys=True)


def _ignored(path: str) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in IGNORED)


def _differences(groups: Sequence[Sequence[Record]]) -> dict[str, tuple[str, ...]]:
    known = dict.fromkeys(path for runs in groups for record in runs for path in paths(record.config))
    found = {}
    for path in known:
        values = tuple(" | ".join(dict.fromkeys(_written(record, path) for record in runs)) for runs in groups)
        if not _ignored(path) and len({"null" if value == "-" else value for value in values}) > 1:
            found[path] = values
    return found


def _written(record: Record, path: str) -> str:
    value = value_at(record.config, path)
    return "-" if value is MISSING else config_text(value)


def _labels(groups: Sequence[Sequence[Record]]) -> tuple[str, list[str]]:
    """The spec that all groups share, and a label for each: its spec, or the config values that other groups lack."""
    bases = [runs[0].spec or f"{runs[0].algorithm} on {runs[0].environment}" for runs in groups]
    common = bases[0] if len(set(bases)) == 1 else ""
    labels = []
    for base, runs in zip(bases, groups, strict=True):
        rivals = [other for other_base, other in zip(bases, groups, strict=True) if other_base == base]
        parts = _distinctions(runs, rivals)
        labels.append(", ".join(parts if common and parts else [base, *parts]))
    double = Counter(labels)
    return common, [f"{label} #{i + 1}" if double[label] > 1 else label for i, label in enumerate(labels)]


def _distinctions(runs: Sequence[Record], rivals: Sequence[Sequence[Record]]) -> list[str]:
    """`lr=0.001` and so on; a path that some group does not have is used only if there is no other."""
    different = _differences(rivals)
    whole = {path: values for path, values in different.items() if "-" not in values} or different
    leaves = Counter(path.rpartition(".")[2] for path in whole)
    names = {path: leaf if leaves[leaf := path.rpartition(".")[2]] == 1 else path for path in whole}
    own = [f"{names[path]}={values[rivals.index(runs)]}" for path, values in whole.items()]
    return [*own[:4], *(["..."] if len(own) > 4 else [])]


def _notes(groups: Sequence[RunGroup], keys: dict[str, str]) -> list[str]:
    notes = []
    if keys.get("reward") == RETURN:
        notes.append("no run was evaluated: reward is the best training return")
    for group in groups:
        notes += [
            f"{group.label}: {len(group.runs) - counted} of {len(group.runs)} runs have no {metric}"
            for metric in keys
            if (counted := len(group.scores[metric].values) if metric in group.scores else 0) < len(group.runs)
        ]
        if len({record.environment for record in group.runs}) > 1:
            notes.append(f"{group.label}: returns of different environments are pooled; compare them one by one")
        if len({record.compiled for record in group.runs} - {None}) > 1:
            notes.append(f"{group.label}: some runs were compiled, others eager: they differ from the last bits on")
        if any(record.state != "finished" for record in group.runs):
            notes.append(f"{group.label}: not every run is finished")
    return notes
