"""An engine that trains nothing: it writes what a run would write, as fast as the disk allows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ludus.archive.store import RunFolder
from ludus.metrics.names import EVAL_RETURN
from ludus.metrics.sinks.jsonl import encode
from ludus.sweeps.coordinator import Coordinator
from ludus.sweeps.engines import Job
from ludus.sweeps.forms import build
from ludus.sweeps.grammar import parameter_of
from ludus.sweeps.store import SweepFolder

EVALUATIONS = 4
Values = dict[str, float]
Objective = Callable[[Values], float]


class Killed(BaseException):
    """Stands for kill -9: nobody catches it."""


def peak(values: Values) -> float:
    """Best at a learning rate of 3e-3 and a clip of 0.2."""
    return -((math.log10(values.get("lr", 1e-3)) + 2.5) ** 2) - (values.get("clip", 0.2) - 0.2) ** 2


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace("e-", "").replace("e+", "").isdecimal()


class ToyTask:
    """A run that makes one evaluation at every look."""

    def __init__(self, engine: ToyEngine, job: Job) -> None:
        self.engine, self.job, self.ended = engine, job, None
        settings = dict(word.split("=", 1) for word in job.arguments[2:] if "=" in word)
        self.values = {key.rpartition(".")[2]: float(value) for key, value in settings.items() if _is_number(value)}
        root = Path(settings["--runs-dir"])
        begun = list(root.glob(f"{job.name}_*"))
        self.folder = RunFolder(begun[0] if begun else root / f"{job.name}_20260101-000000_{len(job.name):04}")
        self.folder.path.mkdir(exist_ok=True)
        self.folder.write("meta.json", {"name": job.name, "number": 1})
        rows = self.folder.path / "metrics.jsonl"
        self.made = len(rows.read_bytes().splitlines()) if rows.exists() else 0
        self.folder.set_status("running")

    def advance(self) -> None:
        problem = self.engine.fails(self.values)
        if problem:
            self.job.log.write_text(f"error: {problem}\n")
            self.folder.set_status("failed")
            self.ended = 2
        elif self.made < EVALUATIONS:
            self.evaluate()
        else:
            self.folder.set_status("finished")
            self.ended = 0

    def evaluate(self) -> None:
        self.made += 1
        value = self.engine.objective(self.values) * self.made / EVALUATIONS
        row = {"epoch": self.made, "env_steps": 256 * self.made, "updates": self.made, "seconds": float(self.made)}
        with (self.folder.path / "metrics.jsonl").open("ab") as file:
            file.write(encode({**row, EVAL_RETURN: value, "train/system/rss_mb": 100.0 * self.made}))

    def code(self) -> int | None:
        return self.ended

    def stop(self, folder: Path | None) -> None:
        self.folder.set_status("stopped")
        self.ended = 75


class ToyEngine:
    """Carries jobs out by itself; remembers which it was given."""

    def __init__(self, objective: Objective = peak, fails: Callable[[Values], str] = lambda _: "") -> None:
        self.objective, self.fails = objective, fails
        self.started: list[str] = []

    def start(self, job: Job) -> ToyTask:
        self.started.append(job.name)
        return ToyTask(self, job)

    def wait(self, tasks: Sequence[Any], seconds: float) -> None:
        assert tasks
        for task in tasks:
            if isinstance(task, ToyTask):
                task.advance()
            else:
                time.sleep(0.01)

    def close(self) -> None:
        pass


def spec_of(*words: str, **fields: Any) -> Any:
    """A sweep over CartPole."""
    searched = [parameter_of(word) for word in words]
    overrides = ["training.total_timesteps=1024", "training.evaluation.every_steps=256"]
    return build(
        {"name": "toy", "base": "CartPole-v1:ppo", "overrides": overrides, "parameters": searched, **fields}, "x"
    )


def sweep(root: Path, spec: Any, engine: ToyEngine | None = None, size: int = 1) -> Coordinator:
    """Start or go on with a sweep, to its end."""
    new = not (root / "@sweeps" / spec.name / "sweep.yaml").exists()
    folder = SweepFolder.create(root, spec) if new else SweepFolder.load(root, spec.name)
    coordinator = Coordinator(folder, engine or ToyEngine(), size)
    coordinator.run()
    return coordinator


def table(coordinator: Coordinator) -> list[Any]:
    """Everything that was decided and found, without the names of folders."""
    found = coordinator.ledger.judged()
    return [(one.trial.latent, one.state, one.value, one.trial.failures, one.trial.ended) for one in found]
