"""Compares groups of runs: runs that differ only in their seed form one group, with statistics over its seeds."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ludus.archive import history, query
from ludus.archive.record import MISSING, Record, paths, read, value_at
from ludus.envs.suites import LOCAL
from ludus.errors import ConfigError
from ludus.metrics.names import RETURN
from ludus.reports.columns import config_text
from ludus.reports.run_metrics import BEST, DEFAULT, FINAL, lower_is_better, metric_key, score, steps_to_threshold
from ludus.reports.scores import Improvement, Scores
from ludus.text import clean

IGNORED = ("experiment.seed", "experiment.name", "experiment.description", "experiment.tags", "logging.*",
           "training.checkpoints.*", "training.evaluation.video.*")  # fmt: skip
"""Config values that do not separate groups: they change no learning curve."""
ORIGINS = ("plugins", "init_from")
"""Fields that separate groups like config values."""
FEW = 5
"""Fewer seeds than this get a note."""
MOST_NAMED = 4
"""Config values in the label of a group."""
_LONGEST = 40
_VAGUE = ("type", "name", "id", "path", "start", "end")
"""Last parts of config paths that mean little without the part before."""


@dataclass(frozen=True)
class RunGroup:
    """Runs that repeat the same experiment."""

    label: str
    runs: tuple[Record, ...]
    left_out: tuple[Record, ...]
    """Older runs of a seed that counts already."""
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
            "left_out": [record.id for record in self.left_out],
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
    lower_is_better: dict[str, bool]
    """Whether the smallest number of a metric is the best."""
    groups: tuple[RunGroup, ...]
    differences: dict[str, tuple[str, ...]]
    """Config path -> its value in each group."""
    improvement: Improvement | None
    """The best group against the second; None without a second, or if one of them has a single run."""
    notes: tuple[str, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """What the groups are compared by; the first decides their order."""
        return tuple(self.lower_is_better)

    def __str__(self) -> str:
        from ludus.reports.export import export_comparison, markdown_text  # it imports this module

        said = [*([str(self.improvement)] if self.improvement else []), *self.notes]
        return "\n- ".join([export_comparison(self, "markdown"), *map(markdown_text, said)])

    _repr_markdown_ = __str__

    def data(self) -> dict[str, object]:
        """Plain data for `--json`."""
        groups = [group.data() for group in self.groups]
        improvement = self.improvement.data() if self.improvement else None
        facts = {"common": self.common, "groups": groups, "differences": self.differences}
        return {**facts, "improvement": improvement, "notes": self.notes}


def compare(records: Sequence[Record], *, metrics: Sequence[str] = DEFAULT, group_by: str = "config") -> Comparison:
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
    lower = {metric: lower_is_better(key) for metric, key in keys.items()}
    sign = 1 if lower[first] else -1
    groups.sort(key=lambda group: sign * group.scores[first].iqm if first in group.scores else math.inf)
    differences = _differences([group.runs for group in groups])
    improvement = _improvement(groups, first, keys[first], -sign)
    notes = [*_notes(groups, keys), *_doubts(groups, first)]
    return Comparison(common, lower, tuple(groups), differences, improvement, tuple(notes))


def _group(label: str, members: Sequence[Record], keys: dict[str, str]) -> RunGroup:
    runs, left_out = _one_per_seed(members)
    scores = {}
    for metric, key in keys.items():
        if strata := _strata(runs, metric, key):
            scores[metric] = Scores.of(list(strata.values()))
    reached = [steps for record in runs if (steps := steps_to_threshold(record)) is not None]
    steps = statistics.median(reached) if reached else None
    times = [record.seconds for record in runs if record.seconds is not None]
    seconds = statistics.fmean(times) if times else None
    return RunGroup(label, tuple(runs), tuple(left_out), scores, steps, len(reached), seconds)


def _one_per_seed(members: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """The newest run of every config and seed, if possible a finished one; and the others, which add no information."""
    chosen: dict[tuple[str, int | None, str], Record] = {}
    for record in sorted(members, key=lambda record: (record.state == "finished", record.started or "", record.id)):
        own = record.id if record.seed is None else ""
        chosen[_group_key(record, "config"), record.seed, own] = record
    kept = {record.id for record in chosen.values()}
    return [run for run in members if run.id in kept], [run for run in members if run.id not in kept]


def _strata(runs: Sequence[Record], metric: str, key: str) -> dict[str | None, list[float]]:
    """The numbers of the runs that have one, by environment."""
    strata: dict[str | None, list[float]] = {}
    for record in runs:
        value = score(record, metric, key)
        if value is not None and abs(value) < history.LARGEST:
            strata.setdefault(record.environment, []).append(value)
    return strata


def _improvement(groups: Sequence[RunGroup], metric: str, key: str, sign: int) -> Improvement | None:
    """The best group against the second, in the environments they share; `sign` -1 if lower is better."""
    if len(groups) < 2:
        return None
    ours, theirs = (_strata(group.runs, metric, key) for group in groups[:2])
    pairs = [
        ([sign * value for value in ours[name]], [sign * value for value in theirs[name]])
        for name in ours
        if name in theirs
    ]
    return Improvement.of(metric, (groups[0].label, groups[1].label), pairs)


def _group_key(record: Record, group_by: str) -> str:
    """Equal for runs of one group: of one config (a value that an older Ludus did not have is null), with the same
    plugins, and from weights of one config, or from none."""
    if group_by != "config":
        return query.shown(record.get(group_by)) or "(none)"
    start = record.init_from.partition("/")[0]
    parent = read(record.folder.with_name(start)) if start and Path(start).name == start else None
    origin = start if parent is None else _values(parent)
    return json.dumps([_values(record), record.plugins, origin], sort_keys=True)


def _values(record: Record) -> dict[str, object]:
    values = {path: value_at(record.config, path) for path in paths(record.config) if not _ignored(path)}
    return {path: value for path, value in values.items() if value is not None}


def _ignored(path: str) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in IGNORED)


def _differences(groups: Sequence[Sequence[Record]]) -> dict[str, tuple[str, ...]]:
    known = dict.fromkeys(path for runs in groups for record in runs for path in (*paths(record.config), *ORIGINS))
    found = {}
    for path in known:
        values = tuple(" | ".join(dict.fromkeys(_written(record, path) for record in runs)) for runs in groups)
        if not _ignored(path) and len({"null" if value == "-" else value for value in values}) > 1:
            found[path] = values
    return found


def _written(record: Record, path: str) -> str:
    if path in ORIGINS:
        return config_text(record.get(path)) or "none"
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
    named = list(whole) if len(whole) <= MOST_NAMED else _telling(whole)
    leaves = Counter(path.rpartition(".")[2] for path in whole)
    own = [f"{_short(path, leaves)}={clean(whole[path][rivals.index(runs)], _LONGEST)}" for path in named]
    return [*own, *(["..."] if len(own) < len(whole) else [])]


def _telling(different: dict[str, tuple[str, ...]]) -> list[str]:
    """Few paths whose values tell all groups apart, the one that separates most first."""
    count = len(next(iter(different.values())))
    left = {(i, j) for i in range(count) for j in range(i)}
    named: list[str] = []
    while left and len(named) < MOST_NAMED:
        split = {
            path: {(i, j) for i, j in left if clean(values[i], _LONGEST) != clean(values[j], _LONGEST)}
            for path, values in different.items()
        }
        best = max(split, key=lambda path: (len(split[path]), -max(map(len, different[path]))))
        if not split[best]:
            break
        named.append(best)
        left -= split[best]
    return named


def _short(path: str, leaves: Counter[str]) -> str:
    """The last part of a path, with the part before it if that is vague, or the whole path if others end like it."""
    before, _, leaf = path.rpartition(".")
    if leaf in _VAGUE and before:
        return f"{before.rpartition('.')[2]}.{leaf}"
    return leaf if leaves[leaf] == 1 else path


def _notes(groups: Sequence[RunGroup], keys: dict[str, str]) -> list[str]:
    notes = []
    if any(keys.get(metric) == RETURN for metric in (*FINAL, *BEST)):
        notes.append("no run was evaluated: final and best are training returns")
    for group in groups:
        notes += [
            f"{group.label}: {len(group.runs) - counted} of {len(group.runs)} runs have no {metric}"
            for metric in keys
            if (counted := len(group.scores[metric].values) if metric in group.scores else 0) < len(group.runs)
        ]
        if len({record.environment for record in group.runs}) > 1:
            notes.append(f"{group.label}: returns of different environments are pooled; compare them one by one")
        if len(group.runs) > 1 and str(group.runs[0].environment).startswith(LOCAL):
            known = "an environment from Python is known by its name alone"
            notes.append(f"{group.label}: {known}; see that runs of different programs had the same one")
        if len({record.compiled for record in group.runs} - {None}) > 1:
            notes.append(f"{group.label}: some runs were compiled, others eager: they differ from the last bits on")
        if any(record.state != "finished" for record in group.runs):
            notes.append(f"{group.label}: not every run is finished")
        if group.left_out:
            older = ", ".join(record.id for record in group.left_out)
            notes.append(f"{group.label}: of each seed only the newest run counts; left out: {older}")
    return notes


def _doubts(groups: Sequence[RunGroup], metric: str) -> list[str]:
    """Why the order of the groups may not hold."""
    notes = []
    if few := [group.label for group in groups if len(group.runs) < FEW]:
        remedy = f"train more, as in --seed {','.join(map(str, range(1, FEW + 1)))}"
        notes.append(f"fewer than {FEW} seeds, too few for a reliable interval: {'; '.join(few)}; {remedy}")
    scored = [(group.label, group.scores[metric]) for group in groups if metric in group.scores]
    if similar := [label for label, scores in scored[1:] if scores.overlaps(scored[0][1])]:
        problem = "so these runs do not show which is better"
        notes.append(f"the 95 % interval of {scored[0][0]} overlaps with that of {'; '.join(similar)}, {problem}")
    return notes
