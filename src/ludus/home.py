"""The home of a run: its folder and lock, the user it talks to, the files and the console it writes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from ludus import switches
from ludus.config.compose import dump
from ludus.config.schema import ExperimentConfig
from ludus.console.live import Console
from ludus.errors import DataError, Diverged, LudusError
from ludus.metrics.sinks import Sink
from ludus.metrics.sinks.csv import Csv
from ludus.metrics.sinks.jsonl import Jsonl
from ludus.orchestration.callbacks.debug import NotFinite, dump_divergence
from ludus.run import Run
from ludus.runs.lock import RunLock
from ludus.runs.store import RunFolder
from ludus.terminal import warn
from ludus.text import near


class Home:
    """What `build` needs to give a run a folder; as a context it holds the lock and records why a run failed.

    `title` is the config as the user named it, `root` where the folder is or will be. The folder is the one that is
    held, or `create` makes it once everything is built and the `checks` have passed. `loads` are called once all
    callbacks are there, before anything is written.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        title: str,
        root: Path,
        *,
        program: tuple[str, ...] = (),
        announce: Callable[[str], None] | None = None,
        debug: bool = False,
    ) -> None:
        self.config, self.title, self.root, self.program, self.debug = config, title, root, program, debug
        self._announce = announce
        self.working_directory = Path.cwd()  # an environment may change it
        self.meta: dict[str, Any] = {}
        """What every checkpoint repeats of meta.json."""
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.create: Callable[[], RunFolder]
        self.checks: list[Callable[[Run], object]] = []
        self.loads: list[Callable[[Run], object]] = []
        self.folder: RunFolder | None = None
        self.console: Console | None = None
        self._run: Run | None = None
        self._lock: RunLock | None = None
        self._begun = False  # until then a refusal leaves the folder as it was

    def __enter__(self) -> Home:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        with ExitStack() as last:
            if self._lock is not None:
                last.callback(self._lock.release)
            if self._run is not None:
                if error is not None and self._begun:
                    last.callback(self._record, self._run, error)
                last.callback(self._run.close)

    def hold(self, folder: RunFolder) -> None:
        """Keep every other process away from the folder."""
        folder.refuse_links()
        lock = RunLock(folder.path)
        lock.acquire()
        self._lock, self.folder = lock, folder

    def open(self, run: Run) -> RunFolder:
        """The folder of a run that is built and fits."""
        self._run = run
        for check in self.checks:
            check(run)
        if self.folder is None:
            self.hold(self.create())
        assert self.folder is not None
        return self.folder

    def begin(self, run: Run) -> None:
        """Load the state the run begins with."""
        for load in self.loads:
            load(run)
        self._begun = True

    def confirm(self) -> None:
        """Refuse a save if the folder now belongs to another process."""
        assert self._lock is not None
        self._lock.confirm()

    @property
    def silent(self) -> bool:
        """Whether the console shows nothing."""
        return switches.quiet() or not self.config.logging.console

    def say(self, message: str) -> None:
        """A note to the user: by `announce` if it was given, above the table if there is a console, else on stderr."""
        if self._announce is not None:
            self._announce(message)
        elif self.console is not None:
            self.console.note(message)
        else:
            warn(message)

    def warn(self, message: str) -> None:
        """A note that reaches the user even if the console is silent."""
        self.say(message)
        if self.console is not None and self.silent:
            warn(message)

    def _record(self, run: Run, error: BaseException) -> None:
        """Why the run ended, into status.json and run.log; with the traceback of a worker if there is one."""
        folder = self.folder
        assert folder is not None
        stopped = isinstance(error, KeyboardInterrupt)
        reason = "interrupted" if stopped else error.line() if isinstance(error, LudusError) else repr(error)
        with suppress(OSError):  # the disk may be the reason; the error itself is on its way to the screen
            folder.set_status("stopped" if stopped else "failed", reason=reason, **run.progress.counters)
            folder.log(reason)
            for line in (getattr(error, "detail", None) or "").splitlines():
                folder.log(line)
            if isinstance(error, Diverged) and not isinstance(error, NotFinite):  # --debug has dumped more already
                dump_divergence(folder.path, run, error.line())


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
    from ludus.metrics.sinks.wandb import WandbSink

    there = config.logging.wandb
    return WandbSink(
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
