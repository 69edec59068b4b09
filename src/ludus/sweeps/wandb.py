"""Engine `wandb`: W&B's server owns the search, its agents call `ludus sweep join NAME`, and the runs are ours.

Reading order: register -> Agents -> (W&B's agent) -> claim.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ludus import files
from ludus.archive.store import read_or_empty
from ludus.errors import ConfigError, MissingExtra
from ludus.sweeps.objective import AREA, key_of
from ludus.sweeps.space import Kind, Parameter
from ludus.sweeps.spec import SweepSpec
from ludus.sweeps.store import SweepFolder, Trial, last_line

NAME = "wandb.json"
"""File of a sweep's folder that remembers its id at W&B."""
PATIENCE = 60.0
"""Seconds that an agent may take to end after it was asked to."""
_DISTRIBUTIONS: dict[Kind, str] = {
    "uniform": "uniform",
    "log_uniform": "log_uniform_values",
    "int": "int_uniform",
    "log_int": "q_log_uniform_values",
    "normal": "normal",
    "log_normal": "log_normal",
}


def check(spec: SweepSpec) -> None:
    """Refuse what W&B cannot do; no client, no key and no server are one line each, at once."""
    try:
        import wandb  # noqa: F401
    except ImportError:
        raise MissingExtra("--engine wandb", "wandb") from None
    if spec.seeds:
        raise ConfigError("--engine wandb", "W&B trains one run per trial", "search seed=1,2,3 instead of --seeds")
    if spec.metric.name == AREA:
        raise ConfigError("metric area", "W&B does not know it", "write --metric final")
    if spec.pruning.type not in ("none", "halving"):
        problem = f"W&B has no early stop '{spec.pruning.type}'"
        raise ConfigError("--engine wandb", problem, "write early_terminate: {type: hyperband, min_iter: 3}, or none")
    from ludus.metrics.sinks.wandb import require_server

    require_server("--engine wandb")


def form_of(spec: SweepSpec, runs_dir: Path) -> dict[str, Any]:
    """A spec in W&B's form, whose command carries out one trial of our folder."""
    join = ["sweep", "join", spec.name, f"--runs-dir={runs_dir.absolute()}"]
    form: dict[str, Any] = {
        "name": spec.name,
        "method": spec.method,
        "metric": {"name": key_of(spec.metric.name), "goal": spec.metric.goal},
        "parameters": {one.key: _shown(one) for one in spec.parameters},
        "command": [sys.executable, "-P", "-m", "ludus", *join],
    }
    if spec.trials is not None:
        form["run_cap"] = spec.trials
    if spec.pruning.type == "halving":
        form["early_terminate"] = {"type": "hyperband", "min_iter": spec.pruning.first, "eta": spec.pruning.eta}
    return form


def _shown(one: Parameter) -> dict[str, Any]:
    if one.kind == "choice":
        odds = {"probabilities": list(one.probabilities)} if one.probabilities else {}
        return {"values": list(one.values), **odds}
    name, whole = _DISTRIBUTIONS[one.kind], one.kind in ("int", "log_int")
    ends = ("mu", "sigma") if one.kind in ("normal", "log_normal") else ("min", "max")
    low, high = (int(end) if whole else end for end in (one.low, one.high))
    rounded = {} if one.step is None else {"q": one.step}
    return {
        "distribution": f"q_{name}" if rounded else name,
        **dict(zip(ends, (low, high), strict=True)),
        **({"q": 1} if one.kind == "log_int" else rounded),
    }


def register(folder: SweepFolder, project: str, entity: str | None) -> str:
    """Make the sweep at W&B, once; returns `entity/project/id`."""
    known = read_or_empty(folder.path / NAME).get("id")
    if isinstance(known, str):
        return known
    import wandb

    try:
        with contextlib.redirect_stdout(io.StringIO()):
            found = wandb.sweep(form_of(folder.spec(), folder.runs_dir), project=project, entity=entity)
    except (wandb.Error, ValueError) as error:
        raise ConfigError(
            "--engine wandb", f"W&B refuses it: {' '.join(str(error).split())[:200]}", "see its form"
        ) from None
    path = "/".join(filter(None, (os.environ.get("WANDB_ENTITY"), os.environ.get("WANDB_PROJECT"), found)))
    files.write_json(folder.path / NAME, {"id": path})
    return path


class Agents:
    """Agents of W&B on this machine, each of which carries out one trial after the other."""

    def __init__(self, folder: SweepFolder, path: str, counts: Sequence[int]) -> None:
        self.stopping = False
        self.logs = [folder.log_of(f"agent-{number}") for number in range(len(counts))]
        variables = {**os.environ, "LUDUS_QUIET": "1", "OMP_NUM_THREADS": "1"}
        self.processes = []
        for count, log in zip(counts, self.logs, strict=True):
            command = [sys.executable, "-P", "-m", "wandb", "agent", f"--count={count}", "--forward-signals", path]
            with log.open("ab") as file:
                started = subprocess.Popen(command, stdout=file, stderr=file, env=variables, start_new_session=True)
            self.processes.append(started)

    def wait(self) -> None:
        """Wait for all of them; when `stopping` is set they let their runs save."""
        asked, until = False, 0.0
        while any(process.poll() is None for process in self.processes):
            if self.stopping and not asked:
                asked, until = True, time.monotonic() + PATIENCE
                for process in self.processes:
                    process.send_signal(signal.SIGTERM)
            if asked and time.monotonic() > until:
                for process in self.processes:
                    process.kill()
            time.sleep(0.2)

    def problem(self) -> str:
        """The last line of an agent that failed; empty if none did."""
        failed = [log for process, log in zip(self.processes, self.logs, strict=True) if process.returncode]
        return last_line(failed[0]) or "an agent failed" if failed and not self.stopping else ""


def shares(trials: int, jobs: int) -> list[int]:
    """How many trials each agent carries out."""
    return [trials // jobs + (number < trials % jobs) for number in range(min(jobs, trials))]


def claim(folder: SweepFolder, values: dict[str, Any]) -> Trial:
    """The next trial of a sweep, with the values that an agent gave; no other process gets its number."""
    spec = folder.spec()
    unknown = next((key for key in values if key not in {one.key for one in spec.parameters}), None)
    missing = next((one.key for one in spec.parameters if one.key not in values), None)
    if unknown or missing:
        raise ConfigError(folder.name, f"{unknown or missing}: the agent's file does not fit", "use its own agent")
    latent = {one.key: one.latent(values[one.key]) for one in spec.parameters}
    number = len(folder.trials())
    while not folder.claimed(trial := Trial(number, latent)):
        number += 1
    return trial
