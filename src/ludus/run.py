"""A run: its parts by name, and what changes about it while it trains.

`ludus.experiment.build` makes one, `ludus.orchestration.orchestrator.Orchestrator` trains it, callbacks watch it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ludus.algorithms import Algorithm, AlgorithmConfig
from ludus.config.schema import ExperimentConfig
from ludus.config.training import Phase
from ludus.data.buffers import Buffers
from ludus.data.collector import Collector
from ludus.data.normalizer import ObservationNormalizer, RewardNormalizer
from ludus.errors import EnvironmentFailed
from ludus.learning.compiled import Compiler
from ludus.learning.learner import Learner
from ludus.metrics.recorder import Recorder
from ludus.networks.precision import Precision
from ludus.orchestration.cadence import EvaluationDue
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.evaluator import EvalResult, Evaluator
from ludus.orchestration.nan_guard import NanGuard
from ludus.orchestration.orchestrator import Orchestrator
from ludus.orchestration.phase_scheduler import PhaseScheduler
from ludus.orchestration.phases import changed_settings
from ludus.progress import Progress
from ludus.seeding import GeneratorState, Streams, TorchState
from ludus.types import Spaces, Stateful

if TYPE_CHECKING:
    from ludus.console.live import Console
    from ludus.run_environments import PhaseEnvironments
    from ludus.watch.monitor import Monitor
    from ludus.watch.vitals import Vitals


@dataclass(kw_only=True, eq=False)
class Run:
    """Everything a run is made of."""

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
    collector: Collector | None = None
    """None in a run that only learns from stored steps."""
    phase_environments: PhaseEnvironments | None = None
    normalizer: ObservationNormalizer | None = None
    reward_normalizer: RewardNormalizer | None = None
    evaluator: Evaluator | None = None
    """None in a run without an environment."""
    threshold: float | None = None
    """Evaluated mean return that counts as solved."""
    callbacks: list[Callback] = field(default_factory=list)
    """Called in this order: those that save come after those that change something."""
    vitals: Vitals | None = None
    """Measures speed and memory for every row of a run that has a folder."""
    say: Callable[[str], None] = lambda _: None
    """Shows one line to the user."""
    folder: Path | None = None
    """The run folder, if it has one."""
    monitor: Monitor | None = None
    console: Console | None = None
    closing: ExitStack = field(default_factory=ExitStack)
    """Threads and programs that end with the run."""

    best: EvalResult | None = None
    last: EvalResult | None = None
    stop_reason: str | None = None
    interrupted: str | None = None
    entered: int = -1
    """Index of the phase whose hook was called last."""
    epoch_start: Progress = field(default_factory=Progress)
    epoch_position: int = 0
    """The position at which the first cycle of this epoch began: where its schedules were read."""
    started: float | None = None
    seconds_before: float = 0.0

    def __post_init__(self) -> None:
        self._closed = False
        self.hooks = self.algorithm.hooks()
        self.evaluation_due = EvaluationDue(self.config.training.evaluation, self.scheduler.budget)
        self.nan_guard = NanGuard(self.config.training.on_nan, self.algorithm)

    # ---- where it stands -------------------------------------------------------------------------

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

    # ---- what may be asked of it -----------------------------------------------------------------

    def run(self) -> None:
        """Train to the end."""
        Orchestrator(self).run()

    def stop(self, reason: str) -> None:
        """Ask the run to end after the current epoch."""
        self.stop_reason = self.stop_reason or reason

    def interrupt(self, reason: str) -> None:
        """Ask the run to end after the current epoch, to be resumed later."""
        self.interrupted = self.interrupted or reason

    @property
    def settings(self) -> AlgorithmConfig:
        """The algorithm's config as it is now."""
        return self.phase_configs[min(self.scheduler.index, len(self.phase_configs) - 1)]

    def change_settings(self, changes: Mapping[str, Any]) -> None:
        """Change the algorithm's config for the rest of this phase; checked like any config."""
        index = min(self.scheduler.index, len(self.phase_configs) - 1)
        changed = changed_settings(self.settings, changes, "settings", self.scheduler.quantum)
        self.algorithm.check(changed, self.scheduler.phase.buffer)
        self.phase_configs[index] = changed

    def enter(self, phase: Phase) -> None:
        """Switch to the environments of a phase."""
        if self.phase_environments is not None:
            self.phase_environments.enter(phase)

    def close(self) -> None:
        """Close sinks, callbacks and environments; an environment that cannot be closed is only reported."""
        if self._closed:
            return
        self._closed = True
        self.closing.close()
        self.recorder.close()
        for part in (*self.callbacks, self.evaluator, self.collector):
            try:
                if part is not None:
                    part.close()
            except EnvironmentFailed as error:
                self.say(error.line())

    # ---- checkpoints -----------------------------------------------------------------------------

    def _parts(self) -> dict[str, Stateful]:
        """What a checkpoint holds besides the algorithm, in the order in which it is loaded."""
        parts: dict[str, Stateful | None] = {
            "scheduler": self.scheduler,
            "evaluation_due": self.evaluation_due,
            "recorder": self.recorder,
            "nan_guard": self.nan_guard,
            "compiler": self.compiler,
            "precision": self.precision,
            "collector": self.collector,
            "buffers": self.buffers,
            "torch": TorchState(),
            "exploration": GeneratorState(self.exploration),
            "normalizer": self.normalizer,
            "reward_normalizer": self.reward_normalizer,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def _named_callbacks(self) -> dict[str, Callback]:
        names = [type(callback).__name__ for callback in self.callbacks]
        return {f"{name} {names[:i].count(name)}": self.callbacks[i] for i, name in enumerate(names)}

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes: what a checkpoint holds."""
        return {
            "algorithm": {name: part.state_dict() for name, part in self.algorithm.state().items()},
            "run": {
                "best": self.best.state_dict() if self.best else None,
                "last": self.last.state_dict() if self.last else None,
                "seconds": self.seconds,
                "entered": self.entered,
                "epoch_start": asdict(self.epoch_start),
                "epoch_position": self.epoch_position,
                "settings": [cfg.model_dump(mode="json") for cfg in self.phase_configs],
            },
            "callbacks": {name: callback.state_dict() for name, callback in self._named_callbacks().items()},
            **{name: part.state_dict() for name, part in self._parts().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where the state was taken; the environments of the phase are entered first."""
        own = state["run"]
        self.scheduler.load_state_dict(state["scheduler"])
        self.entered = own["entered"]
        if self.entered >= 0:
            self.enter(self.phase)
        for name, part in self.algorithm.state().items():
            part.load_state_dict(state["algorithm"][name])
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        for name, callback in self._named_callbacks().items():
            if state["callbacks"].get(name):
                callback.load_state_dict(state["callbacks"][name])
        saved = zip(self.phase_configs, own["settings"], strict=True)
        self.phase_configs = [type(cfg).model_validate(settings) for cfg, settings in saved]
        self.best, self.last = EvalResult.from_state(own["best"]), EvalResult.from_state(own["last"])
        self.seconds_before, self.epoch_position = own["seconds"], own["epoch_position"]
        self.epoch_start = Progress(**own["epoch_start"])
