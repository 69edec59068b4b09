"""report.md and report.html: how a run went, in one page that needs nothing but itself.

Everything is read from the run folder, so that a report can be written at the end of a run, in the middle of one or a
year later. The html holds its style, script and curves; only videos stay files beside it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.errors import DataError, LudusError
from ludus.metrics.names import EVAL_RETURN
from ludus.reports import defaults
from ludus.reports.columns import local_time, size
from ludus.reports.differences import Difference, edits
from ludus.runs import atomic, checkpoint, history, rebuild, record
from ludus.runs.history import Row
from ludus.runs.record import Record, mapping
from ludus.runs.store import read_json
from ludus.text import number
from ludus.watch import idle
from ludus.watch.monitor import Alert, Monitor
from ludus.watch.rules import SHIPPED, Rules

MOST_ROWS = 1000
"""Rows a report looks at, or up to twice as many; those of a longer run are taken at even distances."""


@dataclass(frozen=True)
class Saved:
    """One checkpoint."""

    name: str
    step: int
    size: int
    marks: tuple[str, ...]
    """best, last"""
    mean: float | None
    """Evaluated mean return at that step."""


@dataclass(frozen=True)
class Report:
    """Everything both pages say."""

    run: Record
    meta: dict[str, Any]
    summary: dict[str, Any]
    rows: list[Row]
    rules: Rules
    alerts: list[Alert]
    evaluations: list[Row]
    checkpoints: list[Saved]
    changes: list[Difference]
    """Config values that are not the defaults."""
    videos: list[Path]

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
        """What to write large, and whether that is good, bad or neither."""
        if self.run.state in ("failed", "lost"):
            return self.run.state.upper(), "bad"
        if self.run.state == "running":
            return "RUNNING", "open"
        if self.run.solved is not None:
            return ("SOLVED", "good") if self.run.solved else ("NOT SOLVED", "bad")
        return self.run.state.upper(), "open"

    @property
    def gap(self) -> float | None:
        """Last evaluated mean less the threshold."""
        known = self.run.last is not None and self.run.threshold is not None
        return self.run.last - self.run.threshold if known else None  # type: ignore[operator]


def write_report(folder: Path) -> Path:
    """Write both pages into the run folder; the path of report.html. OSError if the disk refuses."""
    from ludus.reports.html import html
    from ludus.reports.markdown import markdown

    report = gather(folder)
    atomic.write_text(folder / "report.md", markdown(report), durable=False)
    atomic.write_text(folder / "report.html", html(report), durable=False)
    return folder / "report.html"


def gather(folder: Path) -> Report:
    """Read what the folder says about the run."""
    run = record.read(folder)
    if run is None:
        raise DataError(str(folder), "has no config.yaml", "it is not the folder of a run")
    rules = _rules()
    alerts, rows = watch(run, rules)
    evaluations = [row for row in rows if EVAL_RETURN in row]
    return Report(
        run=record.present(run),
        meta=rebuild.meta(folder),
        summary=_read(folder / "metrics.json"),
        rows=rows,
        rules=rules,
        alerts=alerts,
        evaluations=evaluations,
        checkpoints=checkpoints_of(folder, evaluations),
        changes=defaults.changes(run.config),
        videos=_videos(folder),
    )


def provenance(report: Report) -> dict[str, str]:
    """Where the run came from and what it ran on, by name."""
    meta, run, summary = report.meta, report.run, report.summary
    git, host, versions = (mapping(meta.get(name)) for name in ("git", "host", "versions"))
    argv, rung = meta.get("argv"), summary.get("resume")
    facts = {
        "started": local_time(run.started or ""),
        "command": shlex.join(map(str, argv)) if isinstance(argv, list) else "",
        "git commit": str(git.get("commit") or "") + (" with changes" if git.get("dirty") else ""),
        "config hash": run.config_hash,
        "config.yaml was edited": ", ".join(map(str, edits(run.folder, run.config))),
        "machine": ", ".join(str(host[name]) for name in ("name", "platform", "machine") if name in host),
        "CPUs": str(host.get("cpus") or ""),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "resumed with other code": ", ".join(_resumes(meta.get("resumed"))),
        "resume": "" if rung is None else "not exact" if rung == "none" else f"exact, by {rung}",
        "updates": _updates(run.compiled, summary),
        "timings": ", ".join(f"{key} {number(value, 2, trim=True)}" for key, value in _timings(report.rows)),
        "folder": f"{run.folder}, {size(run.size)}",
    }
    return {name: text for name, text in facts.items() if text}


def _updates(compiled: bool | None, summary: Mapping[str, Any]) -> str:
    """How updates ran; a run that has not ended has no summary yet."""
    if "updates_run" in summary:
        return str(summary["updates_run"])
    return "" if compiled is None else "compiled" if compiled else "eager"


def _resumes(entries: Any) -> list[str]:
    """`at step 4,096`, for every resume with other versions or another commit; meta.json has them in full."""
    found = [mapping(entry).get("env_steps") for entry in entries] if isinstance(entries, list) else []
    return [f"at step {steps:,}" for steps in found if isinstance(steps, int)]


def _timings(rows: list[Row]) -> list[tuple[str, float]]:
    """The last value of every metric about time."""
    last: dict[str, float] = {}
    for row in rows:
        last.update({key: history.number(value) for key, value in row.items() if "/time/" in key})
    return sorted(last.items())


def watch(run: Record, rules: Rules | None = None) -> tuple[list[Alert], list[Row]]:
    """Alerts of the run, most frequent first, and the rows they were found in."""
    rows = history.sampled(run.folder, MOST_ROWS)
    monitor = Monitor(rules or _rules(), threshold=run.threshold)
    monitor.replay(rows)
    if _read(run.folder / "metrics.json").get("idle"):  # the rows alone do not know whether updates were asked for
        idle.tell(monitor)
    return sorted(monitor.alerts, key=lambda alert: -alert.rows), rows


def _rules() -> Rules:
    try:
        return Rules.load()
    except LudusError:  # somebody else's configs/metrics.yaml must not stand in the way of a report
        return Rules.load(SHIPPED)


def checkpoints_of(folder: Path, evaluations: list[Row]) -> list[Saved]:
    """Every checkpoint of a run folder, oldest first, with what its evaluation said."""
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


def _videos(folder: Path) -> list[Path]:
    parent = folder / "videos"
    return sorted(path for path in parent.glob("*.mp4") if path.is_file()) if parent.is_dir() else []


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except LudusError:
        return {}
