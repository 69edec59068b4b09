"""Tools that judge: where a metric is heading, what moves with it, how configs differ, what is wrong with a run."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from ludus.archive import history
from ludus.archive.differences import differences
from ludus.archive.record import Record
from ludus.errors import ConfigError
from ludus.interpreter import running_module
from ludus.mcp.look import Looking, plain
from ludus.mcp.runs import SafeIndex, refuse_unknown
from ludus.metrics.names import EVAL_RETURN
from ludus.reports.report import watch
from ludus.secrets import hide
from ludus.text import clean
from ludus.types import Array

LONGEST_WAIT = 60.0
"""Seconds of one call: clients give up on tools that take longer."""
MOST_METRICS, MOST_EPISODES = 20, 200
PATIENCE = 300.0
"""Seconds that an evaluation may take."""


class Judging:
    """The runs of one folder, judged by their numbers."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir, self.index = runs_dir, SafeIndex(runs_dir)
        self._looking = Looking(runs_dir)

    def metric_trend(self, run: str = "@last", metric: str = EVAL_RETURN, last: float = 0.5) -> dict[str, Any]:
        """Where a metric is heading: its change over the last part of the run, beside how much it scatters there."""
        record = self.index.get(run)
        if not 0 < last <= 1:
            raise ConfigError("last", f"{last} is no part of a run", "use a number above 0, at most 1")
        return plain({"run": record.id, "metric": metric, **trend(*self._curve(record, metric), last)})

    def correlate_metrics(self, run: str = "@last", metric: str = EVAL_RETURN) -> dict[str, Any]:
        """Which metrics rise and fall with this one (Spearman's rank correlation over the rows that have both)."""
        record = self.index.get(run)
        steps, values = self._curve(record, metric)
        rows = history.sampled(record.folder, 2_000)
        found = {}
        for name in history.metric_names(rows):
            x, y = history.curve(record.folder, name) if name != metric else ([], [])
            if len(x) > 2 and len(steps) > 2:
                found[name] = rank_correlation(values, np.interp(steps, x, y).tolist())
        known = {name: value for name, value in found.items() if np.isfinite(value)}
        order = sorted(known, key=lambda name: -abs(known[name]))[:MOST_METRICS]
        return plain({"run": record.id, "metric": metric, "correlations": {name: known[name] for name in order}})

    def config_difference(self, run: str, other: str) -> dict[str, Any]:
        """The settings in which two runs differ, with the value of each."""
        one, two = (self.index.get(name) for name in (run, other))
        found = [{"path": d.path, "run": d.before, "other": d.after} for d in differences(one.config, two.config)]
        return plain({"run": one.id, "other": two.id, "differences": found})

    def diagnose_run(self, run: str = "@last") -> dict[str, Any]:
        """What is wrong with a run: its state, alerts with tips, the trend of its return, and what to do next."""
        record = self.index.get(run)
        alerts, _ = watch(record)
        steps, values = history.curve(record.folder, EVAL_RETURN)
        heading = trend(steps, values, 0.5) if len(steps) > 3 else {"verdict": "fewer than four evaluations"}
        lines = [alert.line() for alert in alerts]
        return plain({"status": self._looking.run_status(record.id), "alerts": lines, "return": heading})

    def wait_for_run(self, run: str = "@last", seconds: float = LONGEST_WAIT) -> dict[str, Any]:
        """Wait until a run ends or is evaluated again, at most so many seconds (60), and tell how far it is."""
        until = time.monotonic() + min(max(seconds, 0.0), LONGEST_WAIT)
        status = self._looking.run_status(run)
        last = before = status.get("last")
        while status["state"] == "running" and last == before and time.monotonic() < until:
            time.sleep(0.2)
            status = self._looking.run_status(status["id"])
            last = status.get("last")
        return status

    def evaluate_run(self, run: str = "@last", episodes: int = 20, seed: int | None = None) -> dict[str, Any]:
        """Play fresh episodes (at most 200) with the best checkpoint of a run: mean, deviation, 95 % interval."""
        folder = self.index.folder(run)
        words = ["--episodes", str(min(max(episodes, 1), MOST_EPISODES)), "--json", "--runs-dir", str(self.runs_dir)]
        words += [] if seed is None else ["--seed", str(int(seed))]
        chosen = f"{folder.id}/{folder.checkpoint}" if folder.checkpoint else folder.id
        command = running_module("ludus", "evaluate", chosen, *words)
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise ConfigError(folder.id, f"did not finish within {PATIENCE:g} s", "ask for fewer episodes") from None
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["said nothing"]
            raise ConfigError(folder.id, clean(hide(lines[-1].removeprefix("error: ")), 500))
        return {key: value for key, value in json.loads(done.stdout).items() if key not in ("returns", "lengths")}

    def _curve(self, record: Record, metric: str) -> tuple[list[float], list[float]]:
        steps, values = history.curve(record.folder, metric)
        if not steps:
            refuse_unknown(record, metric)
            raise ConfigError(record.id, f"no value of '{clean(metric, 80)}' is finite", "run_alerts may tell why")
        return steps, values


def trend(steps: list[float], values: list[float], last: float) -> dict[str, Any]:
    """The line through the points of the last part, and whether it rises by more than they scatter around it."""
    x, y = np.asarray(steps), np.asarray(values)
    part = x >= x[-1] - last * (x[-1] - x[0])
    x, y = x[part], y[part]
    facts = {"points": len(x), "from": x[0], "to": x[-1], "first": y[0], "last": y[-1], "min": y.min(), "max": y.max()}
    if len(x) < 3 or x[-1] == x[0]:
        return {**facts, "verdict": "too few points"}
    slope, start = np.polyfit(x - x[0], y, 1)
    change, scatter = slope * (x[-1] - x[0]), np.std(y - (start + slope * (x - x[0])), ddof=2)
    moves = "rises" if change > 0 else "falls"
    return {**facts, "change": change, "scatter": scatter, "verdict": moves if abs(change) > 2 * scatter else "flat"}


def rank_correlation(one: list[float], other: list[float]) -> float:
    """Spearman's rho; NaN if either never changes."""
    first, second = _ranks(one), _ranks(other)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: list[float]) -> Array:
    """Equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]
