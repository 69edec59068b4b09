"""report.md and report.html: the facts of a run on one page.

Everything is read from the run folder, so that a report can be written at any time, also of a run that is under way.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path

from rich.filesize import decimal as size

from ludus import files
from ludus.archive import checkpoint, history, rebuild, record
from ludus.archive.differences import Difference, changes, edits
from ludus.archive.history import Row
from ludus.archive.record import Record, mapping
from ludus.archive.store import read_or_empty
from ludus.errors import DataError, LudusError
from ludus.metrics.names import EVAL_RETURN
from ludus.reports.columns import local_time
from ludus.reports.imagination import Imagined, imaginations
from ludus.text import number
from ludus.watch.monitor import Alert, Monitor
from ludus.watch.rules import SHIPPED, Rules

MOST_ROWS = 1000
"""A report reads evenly spaced rows of a longer run: at least this number, at most twice as many."""


@dataclass(frozen=True)
class Saved:
    """One checkpoint."""

    name: str
    step: int
    size: int
    marks: tuple[str, ...]
    """The links that point to it: best, last."""
    mean: float | None
    """Evaluated mean return at that step."""


@dataclass(frozen=True)
class RunReport:
    """The content of both pages."""

    run: Record
    meta: dict[str, object]
    summary: dict[str, object]
    rows: list[Row]
    rules: Rules
    alerts: list[Alert]
    evaluations: list[Row]
    checkpoints: list[Saved]
    changes: list[Difference]
    """Config values that differ from the defaults."""
    videos: list[Path]
    imagined: list[Imagined]
    """What its world model imagined, by checkpoint."""

    @property
    def x_axis(self) -> str:
        """The counter that curves are drawn over."""
        return history.x_axis(self.rows)

    @property
    def noun(self) -> str:
        """What that counter counts, for people."""
        return "steps" if self.x_axis == "env_steps" else "updates"

    @property
    def verdict(self) -> tuple[str, str]:
        """The headline, and whether it is good, bad or open."""
        if self.run.state in ("failed", "lost"):
            return self.run.state.upper(), "bad"
        if self.run.state in ("running", "stopped"):
            return self.run.state.upper(), "open"
        if self.run.solved is not None:
            return ("SOLVED", "good") if self.run.solved else ("NOT SOLVED", "bad")
        return self.run.state.upper(), "open"

    @property
    def spread(self) -> float | None:
        """Standard deviation of the returns of the last evaluation."""
        found = history.number(self.evaluations[-1].get("val/roll/ep_rew/std")) if self.evaluations else math.nan
        return found if math.isfinite(found) else None

    @property
    def gap(self) -> float | None:
        """Mean return of the last evaluation minus the threshold."""
        last, threshold = self.run.last, self.run.threshold
        return None if last is None or threshold is None else last - threshold


def write_report(folder: Path) -> Path:
    """Write both pages into the run folder and return the path of report.html; OSError if that fails."""
    from ludus.reports.pages import html, markdown

    report = gather(folder)
    files.write_text(folder / "report.md", markdown(report), durable=False)
    files.write_text(folder / "report.html", html(report), durable=False)
    return folder / "report.html"


def gather(folder: Path) -> RunReport:
    """Read the content of a report from a run folder."""
    run = record.read(folder)
    if run is None:
        raise DataError(str(folder), "has no config.yaml", "it is not the folder of a run")
    rules = _rules()
    alerts, rows = watch(run, rules)
    evaluations = [row for row in rows if EVAL_RETURN in row]
    return RunReport(
        run=record.present(run),
        meta=rebuild.meta(folder),
        summary=read_or_empty(folder / "metrics.json"),
        rows=rows,
        rules=rules,
        alerts=alerts,
        evaluations=evaluations,
        checkpoints=checkpoints_of(folder, evaluations),
        changes=changes(run.config),
        videos=sorted(path for path in folder.glob("videos/*.mp4") if path.is_file()),
        imagined=imaginations(folder),
    )


def provenance(report: RunReport) -> dict[str, str]:
    """Code, command, machine and versions of the run, by name."""
    meta, run, summary = report.meta, report.run, report.summary
    git, host, versions = (mapping(meta.get(name)) for name in ("git", "host", "versions"))
    argv, rung, resumed = meta.get("argv"), summary.get("resume"), meta.get("resumed")
    resumes = [mapping(entry).get("env_steps") for entry in resumed] if isinstance(resumed, list) else []
    times = {key: history.number(value) for row in report.rows for key, value in row.items() if "/time/" in key}
    facts = {
        "started": local_time(run.started or ""),
        "command": shlex.join(map(str, argv)) if isinstance(argv, list) else "",
        "git commit": str(git.get("commit") or "") + (" with changes" if git.get("dirty") else ""),
        "config hash": run.config_hash,
        "config.yaml was edited": ", ".join(map(str, edits(run.folder, run.config))),
        "machine": ", ".join(str(host[name]) for name in ("name", "platform", "machine") if name in host),
        "CPUs": str(host.get("cpus") or ""),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "resumed with other code": ", ".join(f"at step {steps:,}" for steps in resumes if isinstance(steps, int)),
        "resume": "" if rung is None else "not exact" if rung == "none" else f"exact, by {rung}",
        "updates": str(summary.get("updates_run", {True: "compiled", False: "eager", None: ""}[run.compiled])),
        "peak memory": ", ".join(f"{phase} {peak:,.0f} MB" for phase, peak in peak_memory(report.rows).items()),
        "timings": ", ".join(f"{key} {number(times[key], 2, trim=True)}" for key in sorted(times)),
        "folder": f"{run.folder}, {size(run.size)}",
    }
    return {name: text for name, text in facts.items() if text}


def peak_memory(rows: list[Row]) -> dict[str, float]:
    """Most memory of the process in each phase, in MB: what its rows show, or the peak of the process if it rose."""
    peaks: dict[str, float] = {}
    highest = 0.0
    for row in rows:
        used, peak = (history.number(row.get(f"train/system/{name}")) for name in ("rss_mb", "peak_rss_mb"))
        if math.isfinite(used) and math.isfinite(peak):
            phase = str(row.get("phase"))
            peaks[phase] = max(peaks.get(phase, 0.0), peak if peak > highest else used)
            highest = max(highest, peak)
    return peaks


def watch(run: Record, rules: Rules | None = None) -> tuple[list[Alert], list[Row]]:
    """Alerts of the run, the most frequent first, and the rows they were found in."""
    rows = history.sampled(run.folder, MOST_ROWS)
    monitor = Monitor(rules or _rules(), threshold=run.threshold)
    monitor.replay(rows)
    if read_or_empty(run.folder / "metrics.json").get("idle"):  # the rows do not say whether updates were requested
        monitor.idle()
    return sorted(monitor.alerts, key=lambda alert: -alert.rows), rows


def _rules() -> Rules:
    try:
        return Rules.load()
    except LudusError:  # a bad configs/metrics.yaml must not prevent a report
        return Rules.load(SHIPPED)


def checkpoints_of(folder: Path, evaluations: list[Row]) -> list[Saved]:
    """Every checkpoint of a run folder, oldest first, with the mean return of its evaluation."""
    x = history.x_axis(evaluations)
    means = {row.get(x): history.number(row[EVAL_RETURN]) for row in evaluations}
    marks: dict[str, list[str]] = {}
    for mark in ("best", "last"):
        link = folder / "checkpoints" / mark
        if link.is_symlink():
            marks.setdefault(str(link.readlink()), []).append(mark)
    return [
        Saved(name, step, record.size_of(path), tuple(marks.get(name, ())), None if updates else means.get(step))
        for name, path in checkpoint.checkpoints(folder).items()
        for step, updates in (checkpoint.position(name),)
    ]
