"""States of checkpoints on their way into a run or a player."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.config.compose import parse
from ludus.config.read import read_file
from ludus.config.schema import ExperimentConfig
from ludus.errors import ConfigError, DataError
from ludus.experiment import Player, build_player
from ludus.orchestration.orchestrator import Orchestrator
from ludus.runs import checkpoint
from ludus.runs.store import RunFolder
from ludus.seeding import Streams
from ludus.session.parts import buffers_of, collector_of
from ludus.types import Spaces

MISFITS = (RuntimeError, KeyError, ValueError, TypeError)
"""What loading a state of another shape raises, from torch and from us."""


def load_state(run: RunFolder) -> tuple[dict[str, Any], list[str], Path]:
    """The state of the checkpoint a reference names, or of the newest good one with what was wrong with newer ones."""
    if run.checkpoint is not None:
        path = checkpoint.find(run.path, run.checkpoint)
        return checkpoint.load(path), [], path
    loaded = checkpoint.load_newest_good(run.path)
    return loaded.state, [f"skipped {fault}" for fault in loaded.skipped], loaded.path


def restore(run: Orchestrator, state: Mapping[str, Any], where: str) -> None:
    """Put a whole state back; one that does not fit the config is refused as a whole."""
    try:
        run.load_state_dict(state)
    except MISFITS as error:
        raise _misfit(where, error) from error


def _misfit(where: str, error: Exception) -> DataError:
    problem = f"the checkpoint does not fit this config: {' '.join(str(error).split())[:200]}"
    return DataError(where, problem, "restore config.yaml, or use --mode warm_start")


def without_buffers(run: Orchestrator, state: Mapping[str, Any]) -> dict[str, Any]:
    """A state whose steps are lost: new episodes in the environments, and nothing in the buffers."""
    collector = collector_of(run)
    if collector is None:
        raise ConfigError("--rebuild-buffer", "this run collects no steps", "restore the stored steps it learns from")
    seeds = Streams(run.config.experiment.seed).integers("rebuilt buffers", collector.num_envs)
    buffers_of(run).clear()
    return {**state, "buffers": {}, "collector": {**state["collector"], "env": None, "barrier_seeds": seeds}}


def run_config(run: RunFolder) -> ExperimentConfig:
    """The config a run was started with."""
    return parse(read_file(run.config_path), str(run.config_path))


def checkpoint_name(run: RunFolder, wanted: str | None) -> str:
    """Name of the checkpoint that --checkpoint or the reference asks for; the default is the best one, or the last."""
    if wanted and run.checkpoint and wanted != run.checkpoint:
        raise ConfigError("--checkpoint", f"says {wanted}, the reference {run.checkpoint}", "give one of them")
    return str(checkpoint.read_manifest(checkpoint.find(run.path, wanted or run.checkpoint))["name"])


def load_player(run: RunFolder, which: str | None, spaces: Spaces) -> Player:
    """The policy of a run's checkpoint (`best`, `last`, `step=N`; default best, else last)."""
    return player_of(run_config(run), checkpoint.find(run.path, which or run.checkpoint), spaces)


def player_of(config: ExperimentConfig, path: Path, spaces: Spaces) -> Player:
    """The policy of a checkpoint; one that does not fit the config is refused."""
    state = checkpoint.load(path)
    try:
        return build_player(config, spaces, state)
    except MISFITS as error:
        raise _misfit(str(path), error) from error
