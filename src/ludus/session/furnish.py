"""What a run in a folder has besides its loop: callbacks that save and watch it; files, alerts and the console."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch

from ludus.archive.portable import write_whole
from ludus.archive.store import RunFolder
from ludus.config.compose import dump
from ludus.config.schema import ExperimentConfig
from ludus.console.live import Console
from ludus.envs.make import make_vector
from ludus.errors import DataError
from ludus.metrics.sinks import Sink
from ludus.metrics.sinks.csv import Csv
from ludus.metrics.sinks.jsonl import Jsonl, read_rows
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.orchestration.callbacks.control import Control
from ludus.orchestration.callbacks.debug import Debug
from ludus.orchestration.callbacks.videos import Videos
from ludus.orchestration.callbacks.watching import Bounds, FirstPolicy, Idle, Status
from ludus.run import Run
from ludus.run_environments import about_environments
from ludus.session.background import BackgroundEvaluation
from ludus.terminal import session_logs
from ludus.text import near
from ludus.watch.alert_command import AlertCommand
from ludus.watch.monitor import Monitor
from ludus.watch.rules import Rules
from ludus.watch.stalled import Stalled
from ludus.watch.vitals import Vitals, one_decision

if TYPE_CHECKING:
    from ludus.session.session import Session


def furnish(session: Session, run: Run) -> None:
    """Add what saves and watches a run in its folder, before the state it begins with is loaded."""
    config, folder, lock = run.config, session.folder, session.lock
    assert lock is not None
    run.folder = folder.path
    run.buffers.attach(run.folder / "buffers")
    about = {"config": dump(config), "meta": session.meta}
    checkpoints = Checkpoints(
        folder.path, config.training.checkpoints, warn=session.warn, about=about, confirm=lock.confirm
    )
    run.monitor = Monitor(Rules.load(), threshold=run.threshold)
    video = config.training.evaluation.video
    make_env = partial(make_vector, config.environment, num_envs=1, render_mode="rgb_array", vectorization="sync")
    if run.background is not None and run.evaluator is not None:
        anew = run.collector is not None and run.collector.resets_at_checkpoints
        names = [plugin.name for plugin in session.plugins]
        former = run.callbacks.index(run.background)
        run.background = BackgroundEvaluation(run.evaluator, folder.path, checkpoints, anew=anew, plugins=names)
        run.callbacks[former] = run.background
    run.callbacks += [
        Status(folder.set_status),
        Bounds(),
        Control(folder.path, checkpoints.request),
        *([Debug(folder.path)] if session.debug else []),
        checkpoints,  # after everything that changes the state it saves
        *([Videos(folder.path, video, make_env, run.streams, warn=session.say)] if video.every_evaluations else []),
        Idle(run.monitor),
        FirstPolicy(run.monitor),
    ]


def show(session: Session, run: Run) -> Console:
    """Open files, alerts and the console; after the state was loaded, because they continue where it stands."""
    folder, logging, monitor = session.folder, run.config.logging, run.monitor
    assert monitor is not None
    if session.debug:
        run.compiler.decline("--debug looks into every layer")
    run.vitals = Vitals(
        run.scheduler.budget,
        epoch=run.progress.epochs,
        position=run.position,
        seconds=run.seconds,
        act=one_decision(run.algorithm, run.spaces.observation),
    )
    rows = folder.path / "metrics.jsonl"
    earlier = list(read_rows(rows)) if rows.exists() else []
    monitor.replay(earlier)
    if session.program:
        command = AlertCommand(session.program, folder.id, cwd=session.working_directory)
        monitor.listeners.append(command)
        run.closing.callback(command.close)
    sinks = [*make_sinks(run.config, folder, monitor.rules.general.step_key, warn=session.warn), monitor]
    if logging.stalled_seconds:
        sinks.append(Stalled(monitor, logging.stalled_seconds, lambda: under_way(run)))
    copy = folder.log if session_logs() else None
    console = session.console = Console(monitor=monitor, copy=copy, quiet=session.silent)
    run.recorder.sinks += [*sinks, console]
    console.replay(earlier)
    facts = header(run, folder, session.title, session.memory)
    starts = run.settings.first_update if run.collector is not None else 0
    console.start(
        facts,
        run.scheduler.budget,
        position=run.position,
        threshold=run.threshold,
        learning_starts=starts,
        under_way=lambda: under_way(run),
    )
    for caution in (*session.cautions, *about_environments(run)):
        console.note(caution, "yellow")
    warnings = [*(sink.warning for sink in sinks if sink.warning), *session.warnings]
    session.notes += [sink.remark for sink in sinks if sink.remark]
    for message in session.notes:
        session.say(message)
    for message in warnings:
        session.warn(message)
    if copy is None:
        for message in (*session.notes, *warnings):
            folder.log(message)
    return console


def under_way(run: Run) -> tuple[int, str]:
    """(position with the steps of the rollout that is being collected, what else is going on)."""
    collector, steps = run.collector, 0
    if collector is not None and run.scheduler.budget.unit == "env_steps":
        steps = collector.under_way * collector.num_envs * run.ranks.count
    return run.position + steps, "" if run.evaluator is None else run.evaluator.under_way


def make_sinks(
    config: ExperimentConfig, folder: RunFolder, step_key: str | None, *, warn: Callable[[str], None] = lambda _: None
) -> list[Sink]:
    """metrics.jsonl always; the others as configured. `step_key` is the x axis of curves."""
    unit, wandb = config.training.budget.unit, config.logging.wandb
    x_axis = step_key or unit
    try:
        sinks: list[Sink] = [Jsonl(folder.path / "metrics.jsonl")]
        if config.logging.csv:
            sinks.append(Csv(folder.path / "metrics.csv"))
        if config.logging.tensorboard:
            from ludus.metrics.sinks.tensorboard import TensorBoard

            sinks.append(TensorBoard(folder.path / "tensorboard", x_axis, dump(config)))
        if wandb.enabled:
            from ludus.metrics.sinks.wandb import WandbSink

            sinks.append(
                WandbSink(
                    folder.path,
                    name=folder.id,
                    project=wandb.project,
                    entity=wandb.entity,
                    tags=(*config.experiment.tags, *wandb.tags),
                    config=dump(config),
                    x_axis=x_axis,
                    counted=unit,
                    pack=partial(write_whole, folder) if wandb.archive else None,
                    warn=warn,
                )
            )
    except OSError as error:
        raise DataError(str(error.filename), f"cannot be written: {error.strerror}", "remove what is there") from None
    return sinks


def header(run: Run, folder: RunFolder, title: str, memory: str) -> dict[str, str]:
    """Who runs what, line by line; `title` is what the user asked for, `memory` what it will take."""
    config, where = run.config, "none: it learns from stored steps"
    if run.collector is not None:
        count, each = run.scheduler.quantum, f", {run.collector.num_envs} in each rank" if run.ranks.count > 1 else ""
        where = f"{config.environment.id}, {count} at once{each}, {run.collector.env.backend}"
    elif run.evaluator is not None:
        where = f"{config.environment.id}, for evaluation only"
    memory_core = f", memory {config.network.memory.name}" if "memory" in run.algorithm.networks else ""
    parameters = [parameter for learner in run.learners.values() for parameter in learner.model.parameters()]
    device = parameters[0].device if parameters else "cpu"
    size = sum(parameter.numel() for parameter in parameters)
    data = "; ".join(buffer.origin for buffer in run.buffers.values() if buffer.origin)
    ranks = f"{run.ranks.count} ranks, " if run.ranks.count > 1 else ""
    return {
        "run": folder.id,
        "config": title,
        "environment": where,
        **({"data": data} if data else {}),
        "algorithm": f"{config.algorithm.name}, {size:,} parameters{memory_core}",
        "machine": f"{ranks}{device}, {torch.get_num_threads()} thread(s), memory {memory}",
        "updates": ", ".join([*update_rates(run), run.compiler.describe()]),
        "seed": str(config.experiment.seed),
        "folder": near(folder.path),
    }


def update_rates(run: Run) -> list[str]:
    """`0.5 per environment step`, for every phase that learns in a ratio to the steps it takes."""
    scheduler, told = run.scheduler, []
    for phase, calls in zip(scheduler.phases, scheduler.calls, strict=True):
        rates = {call.name: float(call.per_env_step) for call in calls if call.per_env_step is not None}
        each = " and ".join(f"{rate:.3g}" + (f" {name}" if len(rates) > 1 else "") for name, rate in rates.items())
        where = f" in phase {phase.name}" if len(scheduler.phases) > 1 else ""
        told += [f"{each} per environment step{where}"] if rates else []
    return told
