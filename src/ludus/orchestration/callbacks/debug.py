"""`ludus train --debug`: checks every update; the first tensor that is not finite ends the run with its name.

Checked in the order in which numbers spread: batch, outputs of the layers, loss, gradients (before the optimizer sees
them), weights. `debug/` gets a trace of the first cycles and numbers about every layer. Nothing of this exists without
--debug; the updates themselves stay what they are, only never compiled.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ludus import files
from ludus.errors import Diverged
from ludus.learning.learner import Learner
from ludus.orchestration.callbacks import Callback
from ludus.types import Report, Tree
from ludus.watch import finite
from ludus.watch.tensors import Activations, weight_statistics

if TYPE_CHECKING:
    from ludus.run import Run

TRACED_CYCLES, TRACED_UPDATES = 3, 20
"""The trace ends with whichever comes first: an update is thousands of events, and writing them takes time."""
STATISTICS_EVERY = 1.0
"""Least seconds between two lines of statistics."""


class NotFinite(Diverged):
    """A tensor of an update is not finite."""


class Debug(Callback):
    """Watches every Learner of the algorithm; `folder` is the run's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.watched: list[Watched] = []
        self._profiler: Any = None
        self._due = self._metrics_due = 0.0

    def on_start(self, run: Run) -> None:
        """Install the hooks and start the trace."""
        (self.folder / "debug").mkdir(mode=0o700, exist_ok=True)
        self.watched = [Watched(name, learner, run, self) for name, learner in run.learners.items()]
        self._start_trace()

    def on_report(self, run: Run, hook: str, report: Report) -> None:
        """Record what the layers put out during an update."""
        if report.updates and time.monotonic() >= self._metrics_due:
            self._metrics_due = time.monotonic() + STATISTICS_EVERY
            run.recorder.record("train", self._activation_metrics())

    def _activation_metrics(self) -> dict[str, float]:
        """Every statistic of every layer, and of the dead units the largest share that a learning layer has."""
        found: dict[str, float] = {}
        dead = [0.0]
        for watched in self.watched:
            learner = f"{watched.name}." if len(self.watched) > 1 else ""
            for layer, facts in watched.activations.statistics().items():
                found |= {f"activations/{learner}{layer}/{name}": value for name, value in facts.items()}
                dead += [] if layer.startswith("target_") else [facts["dead_pct"]]
        return {**found, "activations/dead_max": max(dead)}

    def on_epoch_end(self, run: Run) -> None:
        """Write statistics; end the trace when it is long enough."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + STATISTICS_EVERY
            self._write_statistics(run)
        if run.progress.cycles >= TRACED_CYCLES:
            self.end_trace()

    def on_end(self, run: Run) -> None:
        """Write the last statistics and remove the hooks."""
        self._write_statistics(run)
        self.close()

    def close(self) -> None:
        """End the trace and remove the hooks."""
        self.end_trace()
        for watched in self.watched:
            watched.remove()
        self.watched = []

    def _start_trace(self) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler writes to stderr
        from torch.profiler import ProfilerActivity, profile

        self._profiler = profile(activities=[ProfilerActivity.CPU])
        self._profiler.start()
        atexit.register(self.end_trace)  # torch crashes at exit under a profiler that still runs

    def end_trace(self) -> None:
        """Write what was traced so far."""
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        atexit.unregister(self.end_trace)
        profiler.stop()
        profiler.export_chrome_trace(str(self.folder / "debug" / "trace.json"))
        table = profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=30)
        (self.folder / "debug" / "profile.txt").write_text(table)

    def _write_statistics(self, run: Run) -> None:
        for watched in self.watched:
            head = {"epoch": run.progress.epochs, "env_steps": run.progress.env_steps, "learner": watched.name}
            for file, layers in (
                ("weights.jsonl", weight_statistics(watched.learner.model)),
                ("activations.jsonl", watched.activations.statistics()),
            ):
                with (self.folder / "debug" / file).open("a") as opened:
                    opened.write(json.dumps({**head, "layers": layers}) + "\n")


class Watched:
    """One learner with hooks at every point where a number could go wrong."""

    def __init__(self, name: str, learner: Learner, run: Run, debug: Debug) -> None:
        self.name, self.learner, self.run, self.debug = name, learner, run, debug
        self.updates, self._compiler = 0, learner.compiler
        learner.compiler = None  # hooks cannot look into compiled code
        learner.observer = self.look
        self.activations = Activations(learner.model, self._activation)
        self._gradients = [
            parameter.register_post_accumulate_grad_hook(partial(self._gradient, part))
            for part, parameter in learner.model.named_parameters()
            if parameter.requires_grad  # targets follow, they do not learn
        ]

    def look(self, what: str, tensors: Mapping[str, Tree]) -> None:
        """Refuse a batch, a loss or the terms of a loss that are not finite; the last come after the update."""
        self._refuse_any(what, tensors)
        if what == "loss":
            self._refuse_any("weight", self.learner.layout.unflatten(self.learner.theta))
            self.updates += 1
            if self.updates >= TRACED_UPDATES:
                self.debug.end_trace()

    def remove(self) -> None:
        """Leave the learner as it was."""
        self.activations.remove()
        for hook in self._gradients:
            hook.remove()
        self.learner.observer, self.learner.compiler = None, self._compiler

    def _activation(self, name: str, module: nn.Module, output: Tensor) -> None:
        self._refuse(f"output of layer {name} ({type(module).__name__})", finite.trouble(output.detach()))

    def _gradient(self, name: str, parameter: Tensor) -> None:
        problem = finite.trouble(parameter.grad) if parameter.grad is not None else None
        self._refuse(f"gradient of {name}", problem)

    def _refuse_any(self, kind: str, tensors: object) -> None:
        name, problem = finite.first_bad(tensors) or ("", None)
        self._refuse(f"{kind} {name}", problem)

    def _refuse(self, what: str, problem: str | None) -> None:
        if problem is None:
            return
        learner = self.learner
        facts = {"tensor": what, "problem": problem, "learner": self.name, "scalars": dict(learner.scalars)}
        place = dump(self.debug.folder, self.run, facts, learner, batch=learner.batch)
        where = f"environment step {self.run.progress.env_steps}, after {learner.updates} updates"
        raise NotFinite(where, f"{what} is not finite: {problem}", f"batch and weights are in {place}")


def dump(folder: Path, run: Run, facts: Mapping[str, Any], learner: Learner, *, batch: Any = None) -> Path:
    """Write `nan_dump/` of a run folder: step.json, and weights and batch as safetensors; replaces an older one."""
    from safetensors.torch import save

    target = folder / "nan_dump"
    target.mkdir(mode=0o700, exist_ok=True)
    for name, tree in (("weights", dict(learner.model.state_dict())), ("batch", batch)):
        tensors = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in finite.tensors_of(tree)}
        if tensors:
            files.write_bytes(target / f"{name}.safetensors", save(tensors))
    clock = {"env_steps": run.progress.env_steps, "updates": learner.updates, "epoch": run.progress.epochs}
    files.write_json(target / "step.json", {**facts, **clock, "phase": run.scheduler.phase.name})
    return target


def dump_divergence(folder: Path, run: Run, reason: str) -> Path | None:
    """Write `nan_dump/` for a run without --debug: what is still known after the update."""
    for name, learner in run.learners.items():
        facts = {"tensor": finite.bad_part(learner), "problem": reason, "learner": name}
        return dump(folder, run, facts, learner, batch=getattr(learner, "batch", None))
    return None
