"""Results of shipped configs on fresh seeds: which are trained, what came out, and the page that tells it."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.archive import history
from ludus.archive.index import Index
from ludus.archive.record import Record
from ludus.config.compose import Resolved, config_hash, load
from ludus.config.read import plain, read_file
from ludus.errors import ConfigError
from ludus.reports.export import TextTable, render
from ludus.reports.scores import Scores
from ludus.text import number

LIST = Path(__file__).parents[1] / "configs" / "results.yaml"
CPU = "train/time/cpu_seconds"
HEAD = ("run", "seeds", "IQM", "95 % interval", "worst", "threshold", "solved", "steps", "CPU minutes", "published")
INTRO = """# Results

What shipped configs reach on seeds that no setting was chosen with. The return of a run is the mean of its last
evaluation; a run that reaches its threshold is confirmed on fresh episodes first (100, unless its config says another
number), and these count. IQM is the interquartile mean over seeds, with a bootstrap interval; steps and processor
minutes of one thread are medians over seeds. Published figures are of one run each and often of other versions of a
task: they tell where a result should be, not who is better.
"""


@dataclass(frozen=True)
class Claim:
    """A config whose learning is shown."""

    spec: str
    seeds: tuple[int, ...]
    published: str = ""
    """The figure of others, with its source."""

    def runs(self) -> list[Resolved]:
        """One run per seed, with the shipped settings on one thread."""
        return [load(self.spec, ["runtime.threads=1", f"seed={seed}"]) for seed in self.seeds]


def listed(path: Path = LIST) -> list[Claim]:
    """The claims of a file: `first_seed`, and under `runs` a spec, a number of seeds and what others published."""
    data: dict[str, Any] = plain(read_file(path))
    if unknown := data.keys() - {"first_seed", "runs"}:
        raise ConfigError(str(path), f"unknown key '{min(unknown)}'", "it has first_seed and runs")
    claims = []
    for spec, entry in data.get("runs", {}).items():
        count = entry.get("seeds") if isinstance(entry, dict) else None
        if not isinstance(count, int) or count < 1 or entry.keys() - {"seeds", "published"}:
            raise ConfigError(f"{path}: runs.{spec}", "is not {seeds: N, published: TEXT}", "write it like the others")
        claims.append(Claim(spec, seeds_from(int(data["first_seed"]), count), str(entry.get("published", ""))))
    return claims


def with_earlier(asked: Sequence[Claim], known: Sequence[Claim], runs_dir: Path) -> list[Claim]:
    """What is asked for, and what earlier calls have finished in the folder, with the settings that ship now.

    In the order of `known`, then by name: the page does not depend on the order of the calls.
    """
    published = {claim.spec: claim.published for claim in known}
    seeds: dict[str, set[int]] = {}
    for record in Index(runs_dir).records():
        if record.spec not in {claim.spec for claim in asked} and _is_of_a_claim(record):
            seeds.setdefault(record.spec, set()).add(record.seed or 0)
    earlier = [Claim(spec, tuple(sorted(own)), published.get(spec, "")) for spec, own in seeds.items()]
    places = {spec: place for place, spec in enumerate(published)}
    return sorted([*asked, *earlier], key=lambda claim: (places.get(claim.spec, len(places)), claim.spec))


def _is_of_a_claim(record: Record) -> bool:
    """Whether a run is finished, evaluated and exactly what a claim of its spec would train."""
    if record.state != "finished" or record.last is None or record.seed is None:
        return False
    try:
        (run,) = Claim(record.spec, (record.seed,)).runs()
    except ConfigError:  # a spec that is no longer there
        return False
    return config_hash(run.config) == record.config_hash


def seeds_from(first: int, count: int) -> tuple[int, ...]:
    """`count` seeds, the first of them included."""
    return tuple(range(first, first + count))


@dataclass(frozen=True)
class Result:
    """The finished runs of a claim, summed up."""

    claim: Claim
    scores: Scores
    solved: int
    threshold: float | None
    steps: float
    minutes: float
    commits: frozenset[str]

    @classmethod
    def of(cls, claim: Claim, records: Sequence[Record]) -> Result:
        """Statistics over seeds."""
        return cls(
            claim=claim,
            scores=Scores.of([[record.last for record in records if record.last is not None]]),
            solved=sum(bool(record.solved) for record in records),
            threshold=records[0].threshold,
            steps=statistics.median(record.env_steps or record.updates or 0 for record in records),
            minutes=statistics.median(processor_seconds(record.folder) for record in records) / 60,
            commits=frozenset((record.commit or "unknown")[:7] for record in records),
        )

    def cells(self) -> list[str]:
        """The row of the page, as text."""
        r, count = self.scores, len(self.scores.values)
        digits = 1 if max(abs(r.best), abs(r.worst)) >= 10 else 3
        interval = f"{number(r.low, digits)} to {number(r.high, digits)}" if count > 1 else ""
        threshold = "" if self.threshold is None else f"{self.threshold:g}"
        solved = "" if self.threshold is None else f"{self.solved} of {count}"
        return [
            self.claim.spec, str(count), number(r.iqm, digits), interval, number(r.worst, digits), threshold,
            solved, f"{self.steps:,.0f}", f"{self.minutes:.{2 if self.minutes < 1 else 1}f}", self.claim.published,
        ]  # fmt: skip

    def data(self) -> dict[str, object]:
        """Plain data for results.json."""
        told = {"spec": self.claim.spec, "seeds": list(self.claim.seeds), "published": self.claim.published}
        numbers = {"solved": self.solved, "threshold": self.threshold, "steps": self.steps, "minutes": self.minutes}
        return {**told, **self.scores.data(), **numbers, "commits": sorted(self.commits)}


def processor_seconds(folder: Path) -> float:
    """Processor time of a run's rows, evaluations included."""
    return sum(history.number(row[CPU]) for row in history.rows(folder, CPU))


def finished(claims: Sequence[Claim], runs_dir: Path) -> tuple[list[Result], list[str]]:
    """(results of the claims of which every run is finished, a line for each of the others)."""
    known = {record.config_hash: record for record in Index(runs_dir).records() if record.state == "finished"}
    results, missing = [], []
    for claim in claims:
        found = [known[key] for run in claim.runs() if (key := config_hash(run.config)) in known]
        if len(found) == len(claim.seeds) and any(record.last is not None for record in found):
            results.append(Result.of(claim, found))
        else:
            missing.append(f"{claim.spec}: {len(found)} of {len(claim.seeds)} runs are finished")
    return results, missing


def page(results: Sequence[Result], missing: Sequence[str], command: Iterable[str], *, earlier: bool = False) -> str:
    """The page in Markdown; `earlier` says that other calls have made some of the results."""
    rows = [result.cells() for result in results]
    table = TextTable(HEAD, rows, [False, True, True, True, True, True, True, True, True, False])
    commits = sorted({commit for result in results for commit in result.commits})
    calls = f"`{shlex.join(command)}`{' and earlier calls' if earlier else ''}"
    made = f"Made by {calls} at commit {', '.join(commits)}."
    solved = sum(result.solved == len(result.scores.values) for result in results if result.threshold is not None)
    count = sum(len(result.scores.values) for result in results)
    told = f"{len(results)} configs, {count} runs; of {solved} configs every seed reached the threshold."
    parts = [INTRO, f"{made} {told}", "", render(table, "markdown").rstrip("\n")]
    if missing:
        parts += ["", "## Not finished", "", *(f"- {line}" for line in missing)]
    return "\n".join(parts).rstrip("\n") + "\n"
