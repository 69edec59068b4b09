"""Tools that only look: lists, facts, logs, metrics, comparisons, alerts, plots. None of them changes a file."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ludus import files
from ludus.archive import history, query
from ludus.errors import ConfigError
from ludus.mcp.runs import SafeIndex, refuse_unknown
from ludus.reports.compare import compare
from ludus.reports.export import complete, export_comparison
from ludus.reports.report import checkpoints_of, watch
from ludus.text import clean

MOST_LINES, MOST_POINTS = 500, 500
_TAIL = 1 << 18


class Looking:
    """The runs of one folder, as an agent sees them."""

    def __init__(self, runs_dir: Path) -> None:
        self.index = SafeIndex(runs_dir)

    def list_runs(self, filters: list[str] | None = None, sort: str = "started", limit: int = 20) -> dict[str, Any]:
        """List runs, newest first. Filters are conditions such as "algorithm=ppo" or "reward>400"."""
        found = query.order(self.index.pick(filters or []), sort)
        return plain({"total": len(found), "runs": [record.facts() for record in found[: max(limit, 1)]]})

    def show_run(self, run: str = "@last") -> dict[str, Any]:
        """Everything about one run: facts, config, newest metrics, evaluations, checkpoints, alerts."""
        record = self.index.get(run)
        evaluations = history.evaluations(record.folder)
        saved = checkpoints_of(record.folder, evaluations)
        facts = {**complete(record), "last_metrics": history.last_row(record.folder)}
        return plain({**facts, "checkpoints": list(map(asdict, saved)), "evaluations": evaluations[-20:]})

    def run_status(self, run: str = "@last") -> dict[str, Any]:
        """How far a run is: state, counters, returns, and what to do if it stopped."""
        record = self.index.get(run)
        keys = ("id", "state", "reason", "env_steps", "updates", "seconds", "reward", "last", "threshold", "solved")
        budget = record.values(["training.total_timesteps"])["training.total_timesteps"]
        remedy = {"lost": f"ludus resume {record.id}", "stopped": f"ludus resume {record.id}"}.get(record.state)
        return plain({**record.values(keys), "total_timesteps": budget, "next": remedy})

    def run_logs(self, run: str = "@last", lines: int = 50) -> str:
        """The last lines of run.log."""
        folder = self.index.folder(run)
        try:
            with files.open_regular(folder.path / "run.log", follow=False) as file:
                file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
                text = file.read().decode(errors="replace")
        except OSError as error:
            raise ConfigError(folder.id, f"run.log cannot be read: {error.strerror}", "train it first") from None
        return "\n".join(clean(line, 500) for line in text.splitlines()[-min(max(lines, 1), MOST_LINES) :])

    def run_metrics(self, run: str = "@last", metrics: list[str] | None = None, points: int = 50) -> dict[str, Any]:
        """Metrics over steps, thinned to some points; without names, which metrics there are and their last values."""
        record = self.index.get(run)
        if not metrics:
            return plain({"run": record.id, "last": history.last_row(record.folder)})
        most = min(max(points, 2), MOST_POINTS)
        curves = {name: history.curve(record.folder, name) for name in metrics}
        for name in (name for name, (steps, _) in curves.items() if not steps):
            refuse_unknown(record, name)
        return plain({"run": record.id, "curves": {name: _thinned(*curve, most) for name, curve in curves.items()}})

    def compare_runs(
        self, runs: list[str] | None = None, metrics: list[str] | None = None, group_by: str = "config"
    ) -> str:
        """Compare groups of runs over their seeds, as a markdown table: mean, IQM, 95 % interval."""
        found = compare(self.index.pick(runs or []), metrics=metrics or ["final", "best"], group_by=group_by)
        return export_comparison(found, "markdown", fragment=False)

    def run_alerts(self, run: str = "@last") -> dict[str, Any]:
        """What the monitor noticed about a run, with a tip each; an empty list is good."""
        record = self.index.get(run)
        alerts, _ = watch(record)
        return plain({"run": record.id, "alerts": [{**asdict(alert), "line": alert.line()} for alert in alerts]})

    def plot(self, runs: list[str] | None, metrics: list[str] | None, group_by: str) -> bytes:
        """Learning curves as a PNG picture."""
        from ludus.reports.plots import plot

        found = compare(self.index.pick(runs or []), metrics=metrics or ["final"], group_by=group_by)
        with tempfile.TemporaryDirectory() as room:
            return plot(found, Path(room) / "plot.png").read_bytes()

    def list_environments(self, search: str = "") -> list[dict[str, str]]:
        """What can be trained: every `Env:variant` with tuned settings whose name or description fits."""
        from ludus.config.compose import find_targets

        return [{"spec": target.spec, "description": target.description} for target in find_targets(search)[:200]]

    def show_config(self, spec: str, overrides: list[str] | None = None) -> dict[str, Any]:
        """The resolved config of a spec, without training it."""
        from ludus.config.compose import load
        from ludus.mcp.training import checked

        return plain(load(*checked(spec, overrides or [])).data)


def plain(value: Any) -> Any:
    """As JSON has it: NaN and infinity are null."""
    return json.loads(files.to_json(value))


def _thinned(steps: list[float], values: list[float], most: int) -> dict[str, list[float]]:
    chosen = range(len(steps)) if len(steps) <= most else [i * (len(steps) - 1) // (most - 1) for i in range(most)]
    return {"steps": [steps[i] for i in chosen], "values": [values[i] for i in chosen]}
