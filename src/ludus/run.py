"""A run while it trains: its parts by name, where it stands, and what may be asked of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ludus import run_state
from ludus.algorithms import Algorithm, AlgorithmConfig
from ludus.config.schema import ExperimentConfig
from ludus.config.training import Phase
from ludus.data.buffers import Buffers
from ludus.data.collector import Collector
from ludus.data.normalizer import ObservationNormalizer, RewardNormalizer
from ludus.errors import EnvironmentFailed
from ludus.learning.compiled import Compiler
from ludus.learning.learner import Learner
from ludus.learning.ranks import ALONE, Ranks
from ludus.metrics.recorder import Recorder
from ludus.networks.precision import Precision
from ludus.orchestration.background import Deferred
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.evaluator import EvalResult, EvaluationDue, Evaluator
from ludus.orchestration.nan_guard import NanGuard
from ludus.orchestration.orchestrator import Orchestrator
from ludus.orchestration.phase_scheduler import PhaseScheduler
from ludus.orchestration.phases import changed_settings
from ludus.progress import Progress
from ludus.seeding import Streams
from ludus.types import Spaces

if TYPE_CHECKING:
    from ludus.watch.monitor import Monitor
    from ludus.watch.vitals import Vitals


@dataclass(kw_only=True, eq=False)
class Run:
    """Everything a run is made of, and what changes about it while it trains."""

    config: ExperimentConfig
    spaces: Spaces
    streams: Streams
    exploration: np.random.Generator
    """Draws the actions of training."""
    algorithm: Algorithm
    scheduler: PhaseScheduler
    phase_configs: list[AlgorithmConfig]
    """The algorithm's config in each phase."""
    buffers: Buffers
    recorder: Recorder
    compiler: Compiler
    precision: Precision
    ranks: Ranks = ALONE
    """The processes that train together."""
    shards: dict[str, Any] = field(default_factory=dict)
    """Parts of a loaded state that belong to other ranks, by rank, until they are handed out."""
    collector: Collector | None = None
    """None in a run that only learns from stored steps."""
    enter: Callable[[Phase], None] = lambda _: None
    """Switches to the environments of a phase."""
    normalizer: ObservationNormalizer | None = None
    reward_normalizer: RewardNormalizer | None = None
    evaluator: Evaluator | None = None
    """None in a run without an environment."""
    background: Deferred | None = None
    """Evaluations whose results arrive later; None where training waits for each."""
    threshold: float | None = None
    """Evaluated mean return that counts as solved."""
    callbacks: list[Callback] = field(default_factory=list)
    """Called in this order: those that save come after those that change something."""
    vitals: Vitals | None = None
    """Measures speed and memory for every row of a run that has a folder."""
    monitor: Monitor | None = None
    """Raises alerts about the rows of a run that has a folder."""
    folder: Path | None = None
    """Its run folder, if it has one."""
    say: Callable[[str], None] = lambda _: None
    """Shows one line to the user."""
    closing: ExitStack = field(default_factory=ExitStack)
    """Threads and programs that end with the run."""

    best: EvalResult | None = None
    last: EvalResult | None = None
    stop_reason: str | None = None
    interrupted: str | None = None
    to_confirm: int = 0
    """Fresh episodes to be played at the end of this epoch."""
    entered: int = -1
    """Index of the phase whose hook was called last."""
    epoch_start: Progress = field(default_factory=Progress)
    epoch_position: int = 0
    """The position at which the first cycle of this epoch began: where its schedules were read."""
    started: float | None = None
    seconds_before: float = 0.0
    closed: bool = False

    def __post_init__(self) -> None:
        self.hooks = self.algorithm.hooks()
        self.evaluation_due = EvaluationDue(self.config.training.evaluation, self.scheduler.budget)
        self.nan_guard = NanGuard(self.config.training.on_nan, self.algorithm)

    @property
    def progress(self) -> Progress:
        """Environment steps, updates, cycles and epochs so far."""
        return self.scheduler.progress

    @property
    def position(self) -> int:
        """How much of the budget is used: environment steps, or updates."""
        return self.scheduler.position

    @property
    def phase(self) -> Phase:
        """The phase whose hook was called last."""
        return self.scheduler.phases[max(self.entered, 0)]

    @property
    def seconds(self) -> float:
        """Seconds of training, including those before a resume."""
        return self.seconds_before + (0.0 if self.started is None else time.monotonic() - self.started)

    @property
    def learners(self) -> dict[str, Learner]:
        """The learners of the algorithm by name."""
        return {name: part for name, part in self.algorithm.state().items() if isinstance(part, Learner)}

    @property
    def stopped_early(self) -> bool:
        """Whether an interrupt ended it; one that came after the last step did not."""
        return self.interrupted is not None and self.stop_reason == self.interrupted

    def run(self) -> None:
        """Train to the end."""
        Orchestrator(self).run()

    def stop(self, reason: str) -> None:
        """Ask the run to end after the current cycle, which ends its epoch."""
        self.stop_reason = self.stop_reason or reason

    def confirm(self, episodes: int) -> None:
        """Ask for fresh evaluation episodes at the end of the current epoch."""
        self.to_confirm = episodes

    def interrupt(self, reason: str) -> None:
        """Ask the run to end after the current cycle, to be resumed later in the middle of its epoch."""
        self.interrupted = self.interrupted or reason

    @property
    def settings(self) -> AlgorithmConfig:
        """The algorithm's config as it is now."""
        return self.phase_configs[min(self.scheduler.index, len(self.phase_configs) - 1)]

    def change_settings(self, changes: Mapping[str, Any]) -> None:
        """Change the algorithm's config for the rest of this phase; checked like any config."""
        changed = changed_settings(self.settings, changes, "settings", self.scheduler.quantum)
        self.algorithm.check(self.own_share(changed), self.scheduler.phase.buffer)
        self.phase_configs[min(self.scheduler.index, len(self.phase_configs) - 1)] = changed

    def own_share(self, cfg: AlgorithmConfig) -> AlgorithmConfig:
        """The algorithm's config as this rank has it."""
        return cfg if self.ranks.count == 1 else cfg.of_one_rank(self.ranks.count)

    def close(self) -> None:
        """Close sinks, callbacks and environments; an environment that cannot be closed is only reported."""
        if self.closed:
            return
        self.closed = True
        self.closing.close()
        self.recorder.close()
        for part in (*self.callbacks, self.evaluator, self.collector):
            try:
                if part is not None:
                    part.close()
            except EnvironmentFailed as error:
                self.say(error.line())

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes: what a checkpoint holds."""
        return run_state.state_of(self)

    def own_state(self) -> dict[str, Any]:
        """What only this one of several ranks knows."""
        return run_state.own_state(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        run_state.load(self, state)
