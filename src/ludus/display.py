"""What a run with a folder shows and writes while it trains: rows in files, alerts, the console with its header."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ludus import switches
from ludus.config.compose import dump
from ludus.config.schema import ExperimentConfig
from ludus.console.live import Console
from ludus.errors import DataError
from ludus.metrics.sinks import Sink
from ludus.metrics.sinks.csv import Csv
from ludus.metrics.sinks.jsonl import Jsonl
from ludus.runs.store import RunFolder
from ludus.terminal import warn
from ludus.text import near

if TYPE_CHECKING:
    from ludus.run import Run


class Voice:
    """Says something to the user: above the table once there is a console, on stderr before."""

    def __init__(self, config: ExperimentConfig) -> None:
        self.silent = switches.quiet() or not config.logging.console
        self.console: Console | None = None

    def say(self, message: str) -> None:
        """A note."""
        if self.console is not None:
            self.console.note(message)
        else:
            warn(message)

    def warn(self, message: str) -> None:
        """A note that reaches the user even if the console is silent."""
        self.say(message)
        if self.console is not None and self.silent:
            warn(message)


class Home(Protocol):
    """What a session gives to a run that lives in a folder."""

    voice: Voice
    title: str
    """The config as the user named it."""
    root: Path
    """Where the folder is or will be."""
    meta: dict[str, Any]
    """What every checkpoint repeats of meta.json."""
    program: tuple[str, ...]
    """The user's command for alerts."""
    working_directory: Path
    debug: bool

    def open(self, run: Run) -> RunFolder:
        """The folder, called once everything is built and fits: a new run gets it only now."""

    def confirm(self) -> None:
        """Refuse a save if the folder now belongs to another process."""

    def begin(self, run: Run) -> None:
        """Load the state a run begins with, called once every callback is there, and before a row is written."""


def make_sinks(config: ExperimentConfig, folder: RunFolder) -> list[Sink]:
    """metrics.jsonl always; the others as configured."""
    try:
        sinks: list[Sink] = [Jsonl(folder.path / "metrics.jsonl")]
        if config.logging.csv:
            sinks.append(Csv(folder.path / "metrics.csv"))
        if config.logging.tensorboard:
            from ludus.metrics.sinks.tensorboard import TensorBoard

            sinks.append(TensorBoard(folder.path / "tensorboard", config.training.budget.unit))
        if config.logging.wandb.enabled:
            sinks.append(_wandb(config, folder))
    except OSError as error:
        raise DataError(str(error.filename), f"cannot be written: {error.strerror}", "remove what is there") from None
    return sinks


def _wandb(config: ExperimentConfig, folder: RunFolder) -> Sink:
    from ludus.metrics.sinks.wandb import Wandb

    there = config.logging.wandb
    return Wandb(
        folder.path,
        name=folder.id,
        project=there.project,
        entity=there.entity,
        tags=(*config.experiment.tags, *there.tags),
        config=dump(config),
        x_axis=config.training.budget.unit,
    )


def header(run: Run, folder: RunFolder, title: str, memory: str) -> Mapping[str, str]:
    """Who runs what, line by line; `title` is what the user asked for, `memory` what it will take."""
    config, where = run.config, "none: it learns from stored steps"
    if run.collector is not None:
        where = f"{config.environment.id}, {run.collector.num_envs} at once, {run.collector.env.backend}"
    elif run.evaluator is not None:
        where = f"{config.environment.id}, for evaluation only"
    parameters = [parameter for learner in run.learners.values() for parameter in learner.model.parameters()]
    device = parameters[0].device if parameters else "cpu"
    size = sum(parameter.numel() for parameter in parameters)
    return {
        "run": folder.id,
        "config": title,
        "environment": where,
        "algorithm": f"{config.algorithm.name}, {size:,} parameters, memory {config.network.memory.name}",
        "machine": f"{device}, {torch.get_num_threads()} thread(s), memory {memory}",
        "updates": run.compiler.describe(),
        "seed": str(config.experiment.seed),
        "folder": near(folder.path),
    }
