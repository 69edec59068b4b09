"""What a run takes from a run folder: a whole state, or weights; and the rows a resumed run sets aside."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ludus import files
from ludus.archive import checkpoint
from ludus.archive.store import RunFolder
from ludus.config.schema import ExperimentConfig
from ludus.errors import ConfigError, DataError, ResourceError
from ludus.learning.learner import Learner
from ludus.metrics.sinks.csv import Csv
from ludus.metrics.sinks.jsonl import encode, read_rows
from ludus.run import Run
from ludus.seeding import Streams

SUPERSEDED = "metrics.superseded.jsonl"
MISFITS = (RuntimeError, LookupError, ValueError, TypeError, AttributeError, OverflowError)
"""Errors that loading a state of another shape or with other numbers raises."""


def load_state(run: RunFolder) -> tuple[dict[str, Any], list[str], Path]:
    """The state of the checkpoint that a reference names, or of the newest good one; with faults of newer ones."""
    if run.checkpoint is not None:
        path = checkpoint.find(run.path, run.checkpoint)
        return checkpoint.load(path), [], path
    loaded = checkpoint.load_newest_good(run.path)
    return loaded.state, [f"skipped {fault}" for fault in loaded.skipped], loaded.path


def restore(run: Run, state: Mapping[str, Any], where: str) -> None:
    """Load a whole state; refuse one that does not fit the config."""
    try:
        run.load_state_dict(state)
    except MISFITS as error:
        raise misfit(where, error) from error


def misfit(where: str, error: Exception) -> DataError:
    """The refusal of a state that does not fit."""
    problem = f"the checkpoint does not fit this config: {' '.join(str(error).split())[:200]}"
    return DataError(where, problem, "restore config.yaml, or use --mode warm_start")


def without_buffers(run: Run, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state without stored steps: empty buffers, and new episodes in the environments."""
    if run.collector is None:
        raise ConfigError("--rebuild-buffer", "this run collects no steps", "restore the stored steps it learns from")
    run.buffers.start_over()

    def emptied(part: Mapping[str, Any], rank: int) -> dict[str, Any]:
        assert run.collector is not None
        streams = Streams(run.streams.seed, rank, run.ranks.count)
        seeds = streams.integers("rebuilt buffers", run.collector.num_envs)
        return {**part, "buffers": {}, "collector": {**part["collector"], "env": None, "barrier_seeds": seeds}}

    shards = {name: emptied(shard, int(name)) for name, shard in state.get("ranks", {}).items()}
    return emptied(state, 0) | ({"ranks": shards} if shards else {})


def stored_state(config: ExperimentConfig) -> Callable[[Run], None]:
    """Loads the whole state that `training.resume_path` names, if it does; a missing one is refused at once."""
    named = config.training.resume_path
    if not named:
        return lambda _: None
    path = Path(named).absolute()
    state = checkpoint.load(path)

    def load(run: Run) -> None:
        run.buffers.source = path.resolve().parents[1] / "buffers"
        restore(run, state, named)

    return load


def start_of(other: RunFolder, *, optimizer: bool) -> dict[str, Any]:
    """The source of the initial weights, for meta.json: `verify` needs the same ones."""
    return {"run": other.id, "step": checkpoint.find(other.path, other.checkpoint).name, "optimizer": optimizer}


def begin_from(run: Run, start: Mapping[str, Any], runs_dir: Path) -> list[str]:
    """Copy the weights of another run, as far as they fit; returns what to tell the user."""
    if not isinstance(start, Mapping) or not start.keys() >= {"run", "step", "optimizer"}:
        raise DataError("meta.json: start", "names no weights to begin with", "train with --init-from RUN")
    other = RunFolder.load(runs_dir, f"{start['run']}/{start['step']}")
    return transfer(run, load_state(other)[0], optimizer=bool(start["optimizer"])).lines()


@dataclass
class Transfer:
    """Tensors that were copied, that did not fit, and that the other run does not have."""

    loaded: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For the console and run.log."""
        return [
            f"weights taken over: {len(self.loaded)} tensors",
            *([f"did not fit: {', '.join(self.skipped)}"] if self.skipped else []),
            *([f"not in the other run: {', '.join(self.missing)}"] if self.missing else []),
        ]


def transfer(run: Run, state: Mapping[str, Any], *, optimizer: bool = False) -> Transfer:
    """Copy every tensor whose name and shape agree, and what scales numbers; everything else starts anew."""
    report = Transfer()
    for name, learner in run.learners.items():
        _copy(learner, state["algorithm"].get(name, {}), report, optimizer=optimizer)
    if not report.loaded:
        raise ConfigError("--init-from", "no tensor of that run fits this network", "use a run of the same network")
    report.missing += run.algorithm.take_over(state["algorithm"])
    if run.normalizer is not None and "normalizer" in state:
        run.normalizer.load_state_dict(state["normalizer"])
    return report


def _copy(learner: Learner, state: Mapping[str, Any], report: Transfer, *, optimizer: bool) -> None:
    theirs: Mapping[str, torch.Tensor] = state.get("model", {})
    ours = learner.model.state_dict()
    left = set[str]()
    for name, tensor in ours.items():
        if name in theirs and theirs[name].shape == tensor.shape:
            tensor.copy_(theirs[name])
            report.loaded.append(name)
            continue
        left.add(name.partition(".")[0])
        if name in theirs:
            report.skipped.append(f"{name} {tuple(theirs[name].shape)} -> {tuple(tensor.shape)}")
        else:
            report.missing.append(name)
    report.skipped += [f"{name} (no such tensor here)" for name in theirs if name not in ours]
    for network in left:  # a slow copy of random weights would pull at those that were taken over
        learner.polyak(network.removeprefix("target_"), 1.0)
    learner.version += 1
    if optimizer:
        if report.missing or report.skipped:
            raise ConfigError("--mode", "the optimizer's state fits only an equal network", "use warm_start")
        learner.load_optimizers(state["optimizer"])


def rewind_metrics(folder: Path, epoch: int) -> int:
    """Keep the rows up to `epoch`; the others move to metrics.superseded.jsonl. Returns how many moved."""
    path, table = folder / "metrics.jsonl", folder / "metrics.csv"
    try:
        rows = list(read_rows(path)) if path.exists() else []
        kept = [row for row in rows if float(row.get("epoch", 0)) <= epoch]
        moved = [row for row in rows if float(row.get("epoch", 0)) > epoch]
        if moved:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(folder / SUPERSEDED, flags, 0o600), "ab") as file:
                file.write(b"".join(encode(row) for row in moved))
                file.flush()
                os.fsync(file.fileno())
            files.write_bytes(path, b"".join(encode(row) for row in kept))
        if table.exists():
            beside = files.beside(table)
            csv = Csv(beside)
            for row in kept:
                csv.write(row)
            csv.close()
            beside.replace(table) if kept else table.unlink()
    except OSError as error:
        raise ResourceError(str(folder), f"cannot set rows aside: {error.strerror}", "free some space") from None
    return len(moved)
