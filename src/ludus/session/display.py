"""What shows a run while it trains: sinks, console, recordings."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ludus import switches
from ludus.config.compose import Resolved, dump
from ludus.config.schema import ExperimentConfig
from ludus.envs.make import make_vector
from ludus.envs.vector import VectorEnv
from ludus.metrics.sinks import Sink
from ludus.orchestration.orchestrator import Orchestrator
from ludus.runs.store import RunFolder
from ludus.session.parts import collector_of, compiler_of
from ludus.text import near
from ludus.watch.monitor import Monitor

if TYPE_CHECKING:
    from ludus.console.live import Console


def make_sinks(config: ExperimentConfig, folder: RunFolder) -> Sequence[Sink]:
    """metrics.jsonl always; the others as configured."""
    from ludus.metrics.sinks.csv import Csv
    from ludus.metrics.sinks.jsonl import Jsonl

    sinks: list[Sink] = [Jsonl(folder.path / "metrics.jsonl")]
    if config.logging.csv:
        sinks.append(Csv(folder.path / "metrics.csv"))
    if config.logging.tensorboard:
        from ludus.metrics.sinks.tensorboard import TensorBoard

        sinks.append(TensorBoard(folder.path / "tensorboard", config.training.budget.unit))
    if config.logging.wandb.enabled:
        from ludus.metrics.sinks.wandb import Wandb

        there = config.logging.wandb
        sinks.append(
            Wandb(
                folder.path,
                name=folder.id,
                project=there.project,
                entity=there.entity,
                tags=(*config.experiment.tags, *there.tags),
                config=dump(config),
                x_axis=config.training.budget.unit,
            )
        )
    return sinks


def open_console(
    run: Orchestrator,
    resolved: Resolved,
    folder: RunFolder,
    monitor: Monitor,
    memory: str,
    earlier: list[dict[str, Any]],
) -> Console:
    """The console with its header; silent ones still leave their lines in run.log."""
    from ludus.console.live import Console

    config, algorithm = run.config, run.algorithm
    silent = switches.quiet() or not config.logging.console
    console = Console(monitor=monitor, copy=folder.log if switches.session_logs() else None, quiet=silent)
    collector = collector_of(run)
    where = "none: it learns from stored steps"
    if collector is not None:
        where = f"{config.environment.id}, {collector.num_envs} at once, {collector.env.backend}"
    elif run.evaluator is not None:
        where = f"{config.environment.id}, for evaluation only"
    networks = [part.model for part in algorithm.state().values() if hasattr(part, "model")]
    parameters = [parameter for network in networks for parameter in network.parameters()]
    device = parameters[0].device if parameters else "cpu"
    size = sum(parameter.numel() for parameter in parameters)
    header = {
        "run": folder.id,
        "config": " ".join([resolved.spec, *resolved.overrides]),
        "environment": where,
        "algorithm": f"{config.algorithm.name}, {size:,} parameters, memory {config.network.memory.name}",
        "machine": f"{device}, {torch.get_num_threads()} thread(s), memory {memory}",
        "updates": compiler_of(run).describe(),
        "seed": str(config.experiment.seed),
        "folder": near(folder.path),
    }
    console.replay(earlier)
    console.start(header, run.scheduler.budget, position=run.position, threshold=run.threshold)
    for warning in filter(None, [sink.warning for sink in run.recorder.sinks]):
        console.note(warning, "yellow")
        if silent:
            print(f"ludus: {warning}", file=sys.stderr, flush=True)
        if not switches.session_logs():
            folder.log(warning)
    return console


def render_env(config: ExperimentConfig) -> VectorEnv:
    """One environment that can be looked at."""
    return make_vector(config.environment, num_envs=1, render_mode="rgb_array", vectorization="sync")
