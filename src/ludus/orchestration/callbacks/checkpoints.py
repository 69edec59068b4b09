"""Saves the state of a run: by steps, by updates, by minutes, at evaluations, on signals and at the end.

The state is copied at the end of an epoch, or of a cycle if a signal came, and written by a thread, so that training
does not wait for the disk. An old checkpoint is removed only after a newer one has been read back and verified.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus import files
from ludus.archive import checkpoint
from ludus.config.training import CheckpointPlan
from ludus.errors import DataError, ResourceError
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.evaluator import Every
from ludus.orchestration.following import barrier_seeds, collect_shards
from ludus.orchestration.nan_guard import copied
from ludus.progress import Progress

if TYPE_CHECKING:
    from ludus.orchestration.evaluator import EvalResult
    from ludus.run import Run

MOST_FAILURES = 3


class Checkpoints(Callback):
    """Writes `checkpoints/step=N` and the links `best` and `last`; the third failure in a row ends the run."""

    def __init__(
        self,
        folder: Path,
        plan: CheckpointPlan,
        *,
        warn: Callable[[str], None],
        about: Mapping[str, Any] | None = None,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder, self.plan, self.warn = folder, plan, warn
        self.about, self.confirm = dict(about or {}), confirm
        """Config and meta.json that every checkpoint repeats; a call that may refuse a save."""
        self.by_steps, self.by_updates = Every(plan.every_steps), Every(plan.every_updates)
        self.failures = 0
        self._wanted = self._best = False
        self._saved_at = time.monotonic()
        self._saved: Progress | None = None
        self._evaluates: dict[str, str] = {}  # checkpoint -> the one that was being evaluated: to go on, it needs it
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[Path] | None = None

    def on_start(self, run: Run) -> None:
        """Save the initial state; a resumed run already has the checkpoint it comes from."""
        self._due(run.epoch_start)  # asked at the ends of epochs only, and it may be resumed within one
        for folder in (self.folder, self.folder / "videos"):
            files.sweep(folder)
        if run.position == 0:
            self._hand_over(run)
            self._look()
        self._saved_at, self._saved = time.monotonic(), replace(run.progress)

    def on_evaluation(self, run: Run, result: EvalResult) -> None:
        """Ask for a checkpoint at the end of this epoch, if the plan saves this evaluation."""
        best = run.best is result
        if run.background is not None and run.background.taken:  # its weights are saved already
            saved, run.background.taken = run.background.taken, ""
            if best:
                self._mark_best(saved)
            return
        self._best |= best
        self._wanted |= self.plan.at_evaluation == "all" or (best and self.plan.at_evaluation == "best")

    def on_confirmation(self, run: Run, result: EvalResult) -> None:
        """The same for the fresh episodes of a confirmation."""
        self.on_evaluation(run, result)

    def on_epoch_end(self, run: Run) -> None:
        """Save if anything asks for it."""
        due, minutes = self._due(run.progress), self.plan.every_minutes
        due |= run.background is not None and run.background.name == run.scheduler.checkpoint_name
        late = minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes
        if due or self._wanted or (late and not resets_at_checkpoints(run)):
            self.save(run)

    def on_end(self, run: Run) -> None:
        """Save the final state, unless the run was interrupted and a checkpoint would reset its environments."""
        self._look()
        early = run.interrupted is not None and resets_at_checkpoints(run)
        if self._saved != run.progress and not early:
            self.save(run)
        self.finish()

    def request(self) -> None:
        """Save at the end of this epoch."""
        self._wanted = True

    def _due(self, progress: Progress) -> bool:
        """Whether steps or updates have passed a multiple of their interval; asks both."""
        return self.by_steps.due(progress.env_steps) | self.by_updates.due(progress.updates)

    def save(self, run: Run) -> None:
        """Copy the state and hand it to the writer, after the previous write has ended."""
        self._look()
        self.confirm()
        barrier = resets_at_checkpoints(run)
        if barrier and run.collector is not None:
            run.collector.barrier(barrier_seeds(run))
        self._hand_over(run, barrier=barrier)
        run.nan_guard.at_checkpoint()
        self._wanted = self._best = False
        self._saved_at, self._saved = time.monotonic(), replace(run.progress)

    def _hand_over(self, run: Run, *, barrier: bool = False) -> None:
        known = list(checkpoint.checkpoints(self.folder))[-self.plan.keep :]
        name = run.scheduler.checkpoint_name
        run.buffers.at_checkpoint(name, tuple(known))
        best = self._best or run.best is None
        if run.background is not None:
            there = checkpoint.checkpoints(self.folder)
            self._evaluates = {old: played for old, played in self._evaluates.items() if old in there}
            self._evaluates[name] = run.background.name
        state = {**copied(run.state_dict()), "about": self.about}
        if shards := collect_shards(run, name, known, barrier=barrier):
            state["ranks"] = shards
        written = partial(run.recorder.file, env_steps=run.progress.env_steps)
        self._writing = self._writer.submit(self._write, state, name, best, written)

    @property
    def writing(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._writing is not None and not self._writing.done()

    def finish(self) -> None:
        """Wait for the writer; a failure is final now."""
        self._look(last=True)
        self._writer.shutdown()

    def _look(self, *, last: bool = False) -> None:
        if self._writing is None:
            return
        writing, self._writing = self._writing, None
        while not writing.done():
            wait([writing], timeout=0.1)  # short waits let this thread handle signals
        try:
            writing.result()
        except (ResourceError, DataError) as error:  # not written, or damaged when read back
            self.failures += 1
            self._saved = None
            if last or self.failures >= MOST_FAILURES:
                raise
            self.warn(f"{error.line()}; training goes on, the next checkpoint is tried again")
        else:
            self.failures = 0

    def _mark_best(self, name: str) -> None:
        """Point the link `best` at a checkpoint that was written before."""
        self._look()
        if name in checkpoint.checkpoints(self.folder):
            files.replace_link(self.folder / "checkpoints" / "best", name)

    def _write(
        self, state: dict[str, Any], name: str, best: bool, written: Callable[[Path], None] = lambda _: None
    ) -> Path:
        path = checkpoint.save(self.folder, state, name=name, best=best)
        try:
            for name in ("best", "last"):  # also at the top of the run folder, where people look first
                self._link(self.folder / f"{name}.ckpt", f"checkpoints/{name}")
            self._prune(path)
        except OSError as error:
            raise ResourceError(str(self.folder), f"cannot be written: {error.strerror}") from error
        written(path)
        return path

    def _link(self, link: Path, target: str) -> None:
        """Point a link at its target, or remove it where there is none: a new run may have no best checkpoint."""
        there = (self.folder / target).is_symlink()
        if there and not link.is_symlink():
            files.replace_link(link, target)
        elif link.is_symlink() and not there:
            link.unlink()

    def _prune(self, newest: Path) -> None:
        """Remove old checkpoints, but neither the best one nor one whose evaluation the run or a kept one waits for."""
        known, link = checkpoint.checkpoints(self.folder), self.folder / "checkpoints" / "best"
        best = str(link.readlink()) if link.is_symlink() else ""
        evaluated = self._evaluates.get(newest.name, "")
        old = [name for name in known if name not in (best, evaluated)][: -self.plan.keep]
        waited_for = {self._evaluates.get(name) for name in known if name not in old}
        if old := [name for name in old if name not in waited_for]:
            checkpoint.load(newest)  # verify it before older ones are removed
            for name in old:
                shutil.rmtree(known[name], ignore_errors=True)  # the next save tries again

    def state_dict(self) -> dict[str, Any]:
        """Which evaluations the checkpoints wait for."""
        return {"evaluates": dict(self._evaluates)} if self._evaluates else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on waiting for them."""
        self._evaluates = dict(state["evaluates"])


def resets_at_checkpoints(run: Run) -> bool:
    """Whether every checkpoint resets the environments of the run."""
    return run.collector is not None and run.collector.resets_at_checkpoints
