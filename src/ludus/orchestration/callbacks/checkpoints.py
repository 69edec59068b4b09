"""Saves the state of a run: by steps, by updates, by minutes, at evaluations, on signals and at the end.

The state is copied at the end of a cycle and written by a thread of its own, so that training does not wait for the
disk. Old checkpoints go only after a newer one has been read back and found whole.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus import files
from ludus.config.schema import CheckpointPlan
from ludus.errors import DataError, ResourceError
from ludus.orchestration.cadence import Every
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.nan_guard import copied
from ludus.progress import Progress
from ludus.runs import checkpoint
from ludus.seeding import Streams

if TYPE_CHECKING:
    from ludus.data.collector import Collector
    from ludus.orchestration.evaluator import EvalResult
    from ludus.orchestration.orchestrator import Orchestrator

MOST_FAILURES = 3


class Checkpoints(Callback):
    """Writes `checkpoints/step=N` and the links `best` and `last`; the third failure in a row ends the run."""

    def __init__(
        self,
        folder: Path,
        plan: CheckpointPlan,
        collector: Collector | None,
        streams: Streams,
        warn: Callable[[str], None],
        *,
        about: Mapping[str, Any] | None = None,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder, self.plan, self.collector, self.streams, self.warn = folder, plan, collector, streams, warn
        self.about, self.confirm = dict(about or {}), confirm
        """What every checkpoint says about its run; and what may refuse a save."""
        self.by_steps, self.by_updates = Every(plan.every_steps), Every(plan.every_updates)
        self.failures = 0
        self._wanted = self._best = False
        self._saved_at = time.monotonic()
        self._saved: Progress | None = None
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[Path] | None = None

    def on_start(self, run: Orchestrator) -> None:
        """The very beginning is saved too, before anything else happens; a resumed run has the one it comes from."""
        self._due(run)
        for folder in (self.folder, self.folder / "videos"):
            files.sweep(folder)
        if run.position == 0:
            self._hand_over(run)
            self._look()
        self._saved_at, self._saved = time.monotonic(), replace(run.progress)

    def on_evaluation(self, run: Orchestrator, result: EvalResult) -> None:
        """Worth keeping; saved once the cycle is complete."""
        best = run.best is result
        self._best |= best
        self._wanted |= self.plan.at_evaluation == "all" or (best and self.plan.at_evaluation == "best")

    def on_epoch_end(self, run: Orchestrator) -> None:
        """Save if anything asks for it."""
        due, minutes = self._due(run), self.plan.every_minutes
        late = minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes
        if due or self._wanted or (late and not self._resets):
            self.save(run)

    def on_end(self, run: Orchestrator) -> None:
        """The last state; a run stopped early at a barrier goes on from its newest checkpoint instead."""
        self._look()
        early = run.interrupted is not None and self._resets
        if self._saved != run.progress and not early:
            self.save(run)
        self.finish()

    def request(self) -> None:
        """Save at the end of this epoch."""
        self._wanted = True

    @property
    def _resets(self) -> bool:
        return self.collector is not None and self.collector.resets_at_checkpoints

    def _due(self, run: Orchestrator) -> bool:
        """Both counts, each asked every time."""
        return self.by_steps.due(run.progress.env_steps) | self.by_updates.due(run.progress.updates)

    def save(self, run: Orchestrator) -> None:
        """Copy the state and hand it to the writer; the newest failure of the writer is looked at first."""
        self._look()
        self.confirm()
        if self.collector is not None and self.collector.resets_at_checkpoints:
            step = run.progress.env_steps
            self.collector.barrier(self.streams.integers(f"barrier {step}", self.collector.num_envs))
        self._hand_over(run)
        run.nan_guard.at_checkpoint()
        self._wanted = self._best = False
        self._saved_at, self._saved = time.monotonic(), replace(run.progress)

    def _hand_over(self, run: Orchestrator) -> None:
        known = list(checkpoint.checkpoints(self.folder))[-self.plan.keep :]
        buffers: Any = run.stateful["buffers"]
        name = run.scheduler.checkpoint_name
        buffers.at_checkpoint(name, tuple(known))
        best = self._best or run.best is None
        state = {**copied(run.state_dict()), "about": self.about}
        self._writing = self._writer.submit(self._write, state, name, best)

    def finish(self) -> None:
        """Wait for the writer; there is no next time for what fails now."""
        self._look(last=True)
        self._writer.shutdown()

    def _look(self, *, last: bool = False) -> None:
        if self._writing is None:
            return
        writing, self._writing = self._writing, None
        while not writing.done():
            wait([writing], timeout=0.1)  # a signal that another thread caught is noticed here too
        try:
            writing.result()
        except (ResourceError, DataError) as error:  # not written, or not what was written when read back
            self.failures += 1
            self._saved = None
            if last or self.failures >= MOST_FAILURES:
                raise
            self.warn(f"{error.line()}; training goes on, the next checkpoint is tried again")
        else:
            self.failures = 0

    def _write(self, state: dict[str, Any], name: str, best: bool) -> Path:
        path = checkpoint.save(self.folder, state, name=name, best=best)
        try:
            for name in ("best", "last"):  # also at the top of the run folder, where people look first
                self._link(self.folder / f"{name}.ckpt", f"checkpoints/{name}")
            self._prune(path)
        except OSError as error:
            raise ResourceError(str(self.folder), f"cannot be written: {error.strerror}") from error
        return path

    def _link(self, link: Path, target: str) -> None:
        """A run that began with the state of another may have no best checkpoint of its own."""
        there = (self.folder / target).is_symlink()
        if there and not link.is_symlink():
            files.replace_link(link, target)
        elif link.is_symlink() and not there:
            link.unlink()

    def _prune(self, newest: Path) -> None:
        known, link = checkpoint.checkpoints(self.folder), self.folder / "checkpoints" / "best"
        best = str(link.readlink()) if link.is_symlink() else ""
        old = [path for name, path in known.items() if name != best][: -self.plan.keep]
        if old:
            checkpoint.load(newest)  # verified before anything goes
            for path in old:
                shutil.rmtree(path, ignore_errors=True)  # what stays is tried again next time
