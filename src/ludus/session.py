"""A training session: builds the run, gives it a folder and a face, trains, and says how it went."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ludus.config import files
from ludus.config.compose import Resolved, config_hash, dump, parse, to_yaml
from ludus.config.schema import ExperimentConfig
from ludus.envs.make import probe
from ludus.errors import LudusError
from ludus.experiment import Player, build, build_player
from ludus.metrics.monitor import Monitor
from ludus.metrics.rules import Rules
from ludus.metrics.sinks import Sink
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.orchestration.orchestrator import Orchestrator
from ludus.runs import checkpoint
from ludus.runs.store import Run, safe_name
from ludus.types import Spaces

if TYPE_CHECKING:
    from ludus.metrics.sinks.console import Console


def train(resolved: Resolved, *, runs_dir: Path) -> Orchestrator:
    """One run from the resolved config to its last line; the folder appears only once everything is built."""
    config = resolved.config
    monitor, console = Monitor(Rules.load()), None
    run = build(config, announce=lambda message: say(console, message))
    name = run_name(resolved)
    folder = Run.create(
        runs_dir,
        name,
        config_yaml=to_yaml(config),
        config_hash=config_hash(config),
        spec=resolved.spec,
        overrides=resolved.overrides,
    )
    run.recorder.sinks += [*make_sinks(config, folder), monitor]
    run.callbacks.append(Checkpoints(folder.folder))
    if config.logging.console:
        console = open_console(run, resolved, folder, monitor)
        run.recorder.sinks.append(console)
    with ExitStack() as ending:
        ending.push(lambda _, error, __: record_failure(run, folder, error))
        ending.callback(close, run)
        ending.callback(run.recorder.close)
        run.run()
    finish(run, folder, console)
    return run


def run_name(resolved: Resolved) -> str:
    """The experiment's name, with the variant where it is only the environment's."""
    name = resolved.config.experiment.name
    return safe_name(resolved.spec) if name is None or resolved.spec.startswith(f"{name}:") else name


def record_failure(run: Orchestrator, folder: Run, error: BaseException | None) -> None:
    """Why it ended, into status.json and run.log; with the traceback of a worker if there is one."""
    if error is None:
        return
    stopped = isinstance(error, KeyboardInterrupt)
    reason = "interrupted" if stopped else error.line() if isinstance(error, LudusError) else repr(error)
    folder.set_status("stopped" if stopped else "failed", reason=reason, **counters(run))
    folder.log(reason)
    for line in (getattr(error, "detail", None) or "").splitlines():
        folder.log(line)


def say(console: Console | None, message: str) -> None:
    """A note above the table, or on stderr before there is one."""
    if console is not None:
        console.note(message)
    else:
        print(f"ludus: {message}", file=sys.stderr, flush=True)


def finish(run: Orchestrator, folder: Run, console: Console | None) -> None:
    """Final numbers into the folder and onto the screen."""
    result = summary(run, folder)
    folder.write_summary({key: value for key, value in result.items() if key != "next"})
    folder.set_status("finished", reason=run.stop_reason, **counters(run))
    folder.log(f"finished: {run.stop_reason}")
    if console is not None:
        console.summary(result)


def summary(run: Orchestrator, folder: Run) -> dict[str, Any]:
    """How it went: the last evaluation decides."""
    last = run.last
    return {
        **({"mean": last.mean, "std": last.std, "episodes": last.episodes} if last else {}),
        **({"best": run.best.mean, "best_step": run.best.env_steps} if run.best else {}),
        "threshold": run.threshold,
        "solved": bool(last and run.threshold is not None and last.mean >= run.threshold),
        "reason": run.stop_reason,
        "seconds": run.seconds,
        "compiled": bool(run.stateful["compiler"].state_dict()["used"]),
        **counters(run),
        "folder": str(folder.folder),
        "next": [("ludus play @last", "watch it"), (f"ludus play {folder.id} --video auto", "record it")],
    }


def counters(run: Orchestrator) -> dict[str, int]:
    """The counters, by their own names."""
    return {"env_steps": run.clock.env_steps, "updates": run.clock.updates, "epochs": run.clock.cycles}


def make_sinks(config: ExperimentConfig, folder: Run) -> Sequence[Sink]:
    """metrics.jsonl always; the others as configured."""
    from ludus.metrics.sinks.csv import Csv
    from ludus.metrics.sinks.jsonl import Jsonl

    sinks: list[Sink] = [Jsonl(folder.folder / "metrics.jsonl")]
    if config.logging.csv:
        sinks.append(Csv(folder.folder / "metrics.csv"))
    if config.logging.tensorboard:
        from ludus.metrics.sinks.tensorboard import TensorBoard

        sinks.append(TensorBoard(folder.folder / "tensorboard"))
    if config.logging.wandb.enabled:
        from ludus.metrics.sinks.wandb import Wandb

        there = config.logging.wandb
        sinks.append(
            Wandb(
                folder.folder,
                name=folder.id,
                project=there.project,
                entity=there.entity,
                tags=(*config.experiment.tags, *there.tags),
                config=dump(config),
            )
        )
    return sinks


def open_console(run: Orchestrator, resolved: Resolved, folder: Run, monitor: Monitor) -> Console:
    """The console with its header."""
    from ludus.metrics.sinks.console import Console

    config, algorithm = run.config, run.algorithm
    console = Console(monitor=monitor)
    env = algorithm.collector.env  # type: ignore[attr-defined]
    policy = getattr(algorithm, "policy", None)
    device = next(policy.parameters()).device if policy is not None else "cpu"
    size = sum(p.numel() for p in policy.parameters()) if policy is not None else 0
    header = {
        "run": folder.id,
        "config": " ".join([resolved.spec, *resolved.overrides]),
        "environment": f"{config.environment.id}, {env.num_envs} at once, {env.backend}",
        "algorithm": f"{config.algorithm.name}, {size:,} parameters, memory {config.network.memory.name}",
        "machine": f"{device}, {torch.get_num_threads()} thread(s)",
        "seed": str(config.experiment.seed),
        "folder": str(folder.folder),
    }
    console.start(header, run.scheduler.total_steps, threshold=run.threshold)
    for warning in probe(config.environment):
        console.note(warning, "yellow")
    return console


def close(run: Orchestrator) -> None:
    """Shut all environments down."""
    run.evaluator.close()
    collector = getattr(run.algorithm, "collector", None)
    if collector is not None:
        collector.close()


def load_player(run: Run, which: str | None, spaces: Spaces) -> Player:
    """The policy of a run's checkpoint (`best`, `last`, `step=N`; default best, else last)."""
    config = parse(files.read(run.config_path), str(run.config_path))
    state = checkpoint.load(checkpoint.find(run.folder, which or run.checkpoint))
    return build_player(config, spaces, state)
