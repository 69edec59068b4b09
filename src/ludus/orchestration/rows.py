"""One row of metrics: what was recorded since the last one, hyperparameters, speed and memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ludus.config.schedule import Schedule

if TYPE_CHECKING:
    from ludus.run import Run


def write_row(run: Run) -> None:
    """Hand the row to all sinks and tell callbacks about it."""
    progress, seconds = run.progress, run.seconds
    run.recorder.record("train", hyperparameters(run))
    if run.vitals is not None:
        measured = run.vitals.measure(epoch=progress.epochs, position=run.position, seconds=seconds)
        run.recorder.record("train", measured)
    row = run.recorder.flush(
        epoch=progress.epochs,
        env_steps=progress.env_steps,
        updates=progress.updates,
        phase=run.phase.name,
        seconds=seconds,
    )
    for callback in run.callbacks:
        callback.on_row(run, row)


def hyperparameters(run: Run) -> Mapping[str, float]:
    """Schedules as the first cycle of the epoch saw them."""
    cfg, total = run.phase_configs[run.entered], run.scheduler.budget.total
    return {f"hp/{k}": v.at(run.epoch_position, total) for k, v in cfg if isinstance(v, Schedule)}
