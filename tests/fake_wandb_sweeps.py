"""The calls of W&B's GraphQL server that `wandb sweep` and `wandb agent` make, on 127.0.0.1; it searches grids."""

from __future__ import annotations

import itertools
import json
from typing import Any

import yaml

from fake_wandb import FakeWandb


class FakeSweeps(FakeWandb):
    """A server with sweeps: every agent gets one point of the grid after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[dict[str, Any]] = []
        self.points: list[dict[str, Any]] = []
        self.given = 0
        self.stop_after: int | None = None
        """Heartbeats of a run after which it is told to stop."""
        self.beats = 0

    def answer(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        if "upsertSweep" in query:
            self.forms.append(yaml.safe_load(given["config"]))
            self.points = list(grid(self.forms[-1]["parameters"]))
            owner = {"id": "e1", "name": "alice"}
            sweep = {"name": "sweep1", "project": {"id": "p1", "name": given["projectName"], "entity": owner}}
            return {"upsertSweep": {"sweep": sweep, "configValidationWarnings": []}}
        if "sweep(sweepName" in query:
            found = {"id": "s1", "name": "sweep1", "state": "RUNNING", "config": yaml.safe_dump(self.forms[-1]),
                     "method": "grid", "runs": {"edges": []}}  # fmt: skip
            return {"project": {"sweep": found}}
        if "createAgent" in query:
            return {"createAgent": {"agent": {"id": "a1"}}}
        if "agentHeartbeat" in query:
            commands = self.commands(json.loads(given["runState"]))
            return {"agentHeartbeat": {"agent": {"id": "a1"}, "commands": json.dumps(commands)}}
        return super().answer(query, given)

    def commands(self, running: dict[str, Any]) -> list[dict[str, Any]]:
        if running:
            self.beats += 1
            tired = self.stop_after is not None and self.beats >= self.stop_after
            return [{"type": "stop", "run_id": name} for name in running] if tired else []
        if self.given == len(self.points):
            return [{"type": "exit"}]
        self.given += 1
        values = {key: {"value": value} for key, value in self.points[self.given - 1].items()}
        program = self.forms[-1].get("program", "none")
        return [{"type": "run", "run_id": f"run{self.given}", "program": program, "args": values}]


def grid(parameters: dict[str, Any]) -> Any:
    """Every combination, nested parameters as nested values."""
    axes = [list(_axis(item)) for item in parameters.values()]
    for point in itertools.product(*axes):
        yield dict(zip(parameters, point, strict=True))


def _axis(item: dict[str, Any]) -> Any:
    if "parameters" in item:
        return grid(item["parameters"])
    return item["values"] if "values" in item else [item["value"]]
