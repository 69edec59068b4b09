"""What a run or a player takes from a run folder: a whole state, or weights; and the rows a resumed run sets aside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ludus import files
from ludus.config.compose import parse
from ludus.config.read import read_file
from ludus.config.schema import ExperimentConfig
from ludus.errors import ConfigError, DataError, ResourceError
from ludus.experiment import Player, build_player
from ludus.learning.learner import Learner
from ludus.metrics.sinks.csv import Csv
from ludus.metrics.sinks.jsonl import encode, read_rows
from ludus.run import Run
from ludus.runs import checkpoint
from ludus.runs.store import RunFolder
from ludus.types import Spaces

SUPERSEDED = "metrics.superseded.jsonl"
MISFITS = (RuntimeError, KeyError, ValueError, TypeError)
"""Errors that loading a state of another shape raises."""


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
        raise _misfit(where, error) from error


def _misfit(where: str, error: Exception) -> DataError:
    problem = f"the checkpoint does not fit this config: {' '.join(str(error).split())[:200]}"
    return DataError(where, problem, "restore config.yaml, or use --mode warm_start")


def without_buffers(run: Run, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state without stored steps: empty buffers, and new episodes in the environments."""
    if run.collector is None:
        raise ConfigError("--rebuild-buffer", "this run collects no steps", "restore the stored steps it learns from")
    seeds = run.streams.integers("rebuilt buffers", run.collector.num_envs)
    run.buffers.clear()
    return {**state, "buffers": {}, "collector": {**state["collector"], "env": None, "barrier_seeds": seeds}}


def saved_config(run: RunFolder) -> ExperimentConfig:
    """The config that a run folder holds."""
    return parse(read_file(run.config_path), str(run.config_path))


def run_config(run: RunFolder, env: str | None = None) -> ExperimentConfig:
    """The config of a run that is to be played; `env` names an environment if the run has none of its own."""
    config = saved_config(run)
    if env is not None and config.environment.id not in ("", env):
        raise ConfigError("--env", f"the run has its own environment, {config.environment.id}", "leave it out")
    if not env and not config.environment.id:
        problem = "environment.id is not set: the run learned without an environment"
        raise ConfigError(str(run.config_path), problem, "name one: --env ID")
    named = config.environment.model_copy(update={"id": env or config.environment.id})
    return config.model_copy(update={"environment": named})


def checkpoint_name(run: RunFolder, wanted: str | None) -> str:
    """Name of the checkpoint that --checkpoint or the reference asks for; the default is the best one, or the last."""
    if wanted and run.checkpoint and wanted != run.checkpoint:
        raise ConfigError("--checkpoint", f"says {wanted}, the reference {run.checkpoint}", "give one of them")
    return str(checkpoint.read_manifest(checkpoint.find(run.path, wanted or run.checkpoint))["name"])


def load_player(run: RunFolder, which: str | None, spaces: Spaces) -> Player:
    """The policy of a run's checkpoint (`best`, `last`, `step=N`; default best, else last)."""
    config = saved_config(run)
    return player_of(config, checkpoint.find(run.path, which or run.checkpoint), spaces)


def player_of(config: ExperimentConfig, path: Path, spaces: Spaces) -> Player:
    """The policy of a checkpoint; one that does not fit the config is refused."""
    state = checkpoint.load(path)
    try:
        return build_player(config, spaces, state)
    except MISFITS as error:
        raise _misfit(str(path), error) from error


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
    """Copy every tensor whose name and shape agree, and the observation statistics; everything else starts anew."""
    report = Transfer()
    for name, learner in run.learners.items():
        _copy(learner, state["algorithm"].get(name, {}), report, optimizer=optimizer)
    if not report.loaded:
        raise ConfigError("--init-from", "no tensor of that run fits this network", "use a run of the same network")
    if run.normalizer is not None and "normalizer" in state:
        run.normalizer.load_state_dict(state["normalizer"])
    return report


def _copy(learner: Learner, state: Mapping[str, Any], report: Transfer, *, optimizer: bool) -> None:
    theirs: Mapping[str, torch.Tensor] = state.get("model", {})
    ours = learner.model.state_dict()
    for name, tensor in ours.items():
        if name not in theirs:
            report.missing.append(name)
        elif theirs[name].shape != tensor.shape:
            report.skipped.append(f"{name} {tuple(theirs[name].shape)} -> {tuple(tensor.shape)}")
        else:
            tensor.copy_(theirs[name])
            report.loaded.append(name)
    report.skipped += [f"{name} (no such tensor here)" for name in theirs if name not in ours]
    learner.version += 1
    if optimizer:
        if report.missing or report.skipped:
            raise ConfigError("--mode", "the optimizer's state fits only an equal network", "use warm_start")
        learner.load_optimizers(state["optimizer"])


def rewind_metrics(folder: Path, epoch: int) -> int:
    """Keep the rows up to `epoch`; the others move to metrics.superseded.jsonl. Returns how many moved."""
    try:
        return _rewind(folder, epoch)
    except OSError as error:
        raise ResourceError(str(folder), f"cannot set rows aside: {error.strerror}", "free some space") from None


def _rewind(folder: Path, epoch: int) -> int:
    path = folder / "metrics.jsonl"
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
    table = folder / "metrics.csv"
    if table.exists():
        beside = files.beside(table)
        csv = Csv(beside)
        for row in kept:
            csv.write(row)
        csv.close()
        beside.replace(table) if kept else table.unlink()
    return len(moved)
