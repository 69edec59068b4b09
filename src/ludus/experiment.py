"""build(config): every object a run is made of, created here in reading order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ludus import preflight, run_state
from ludus.algorithms import Algorithm, AlgorithmConfig, Context
from ludus.config.schema import ExperimentConfig
from ludus.config.training import Phase
from ludus.data.buffers import Buffers, make_buffers
from ludus.data.collector import Collector
from ludus.data.look_ahead import collector_class
from ludus.data.normalizer import ObservationNormalizer, RewardNormalizer, make_normalizer, make_reward_normalizer
from ludus.envs.make import number_of_envs
from ludus.errors import ConfigError, EnvironmentFailed
from ludus.learning.compiled import Compiler
from ludus.learning.learner import Learner
from ludus.learning.ranks import ALONE, Ranks
from ludus.metrics.recorder import Recorder
from ludus.metrics.sinks import Sink
from ludus.networks.encoders import is_large
from ludus.networks.precision import Precision
from ludus.orchestration.background import Deferred
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.callbacks.early_stop import EarlyStop
from ludus.orchestration.evaluator import EvalResult, EvaluationDue, Evaluator
from ludus.orchestration.following import Following
from ludus.orchestration.nan_guard import NanGuard
from ludus.orchestration.orchestrator import Orchestrator
from ludus.orchestration.phase_scheduler import PhaseScheduler
from ludus.orchestration.phases import changed_settings, checked_phases, planned_updates
from ludus.progress import Progress
from ludus.registry import ALGORITHMS, CALLBACKS
from ludus.run_environments import (
    PhaseEnvironments,
    evaluation_environments,
    spaces_of_stored_steps,
    threshold_of,
    training_environments,
)
from ludus.seeding import Streams
from ludus.types import Spaces
from ludus.watch import ram

if TYPE_CHECKING:
    from ludus.watch.monitor import Monitor
    from ludus.watch.vitals import Vitals


def build(
    config: ExperimentConfig,
    *,
    sinks: Sequence[Sink] = (),
    callbacks: Sequence[Callback] = (),
    will_checkpoint: bool = False,
    ranks: Ranks = ALONE,
    say: Callable[[str], None] = lambda _: None,
) -> Run:
    """A wired run, ready for `.run()`; with `will_checkpoint` its environments find out how they can be restored.

    One of several `ranks` gets its share of environments and buffers.
    """
    if config.runtime.ranks != ranks.count:
        problem = f"{config.runtime.ranks} ranks are asked for, and this command trains in {ranks.count} process"
        raise ConfigError("runtime.ranks", problem, "use ludus train or ludus resume")
    seed, device = config.experiment.seed, preflight.pick_device(config.experiment.device, ranks)
    torch.manual_seed(Streams(seed).integers("weights", 1)[0])
    streams = Streams(seed, ranks.rank, ranks.count)
    spaces, own_envs, collector, normalizer, reward_normalizer, buffers = experience(
        config, streams, will_checkpoint, ranks
    )
    num_envs = own_envs * ranks.count
    preflight.set_threads(config, large=is_large(spaces.observation), ranks=ranks)
    rng, evaluation_rng = streams.generator("exploration"), streams.generator("evaluation")
    compiler = Compiler(
        config.runtime.compile,
        planned=planned_updates(config, num_envs),
        pays_from=config.algorithm.config.compiling_pays_from,
        announce=say,
    )
    precision = Precision(config.runtime.precision)
    context = Context(
        spaces=spaces,
        network=config.network,
        num_envs=own_envs,
        device=device,
        rng=rng,
        evaluation_rng=evaluation_rng,
        collector=collector,
        buffers=buffers,
        compiler=compiler,
        precision=precision,
    )
    chosen = ALGORITHMS[config.algorithm.name]
    with preflight.RoomForNetwork(chosen):
        algorithm: Algorithm = chosen(config.algorithm.config, context)
    phases, settings = checked_phases(config, algorithm, buffers, num_envs, ranks.count)
    run = Run(
        config=config,
        ranks=ranks,
        spaces=spaces,
        streams=streams,
        exploration=rng,
        algorithm=algorithm,
        scheduler=PhaseScheduler(phases, config.training.budget, hooks=algorithm.hooks(), step_quantum=num_envs),
        phase_configs=settings,
        collector=collector,
        buffers=buffers,
        normalizer=normalizer,
        reward_normalizer=reward_normalizer,
        recorder=Recorder(sinks),
        compiler=compiler,
        precision=precision,
        say=say,
    )
    complete(run, callbacks, evaluation_rng)
    return run


def experience(
    config: ExperimentConfig, streams: Streams, will_checkpoint: bool, ranks: Ranks
) -> tuple[Spaces, int, Collector | None, ObservationNormalizer | None, RewardNormalizer | None, Buffers]:
    """What steps come from and go to: a collector, none for a run that learns from stored steps, and buffers."""
    num_envs = number_of_envs(config.environment) // ranks.count
    env = training_environments(config, num_envs)
    spaces = Spaces(env.observation_space, env.action_space) if env else spaces_of_stored_steps(config)
    normalizer = make_normalizer(config.environment, spaces.observation)
    reward_normalizer = make_reward_normalizer(config, num_envs)
    collector = None
    if env is not None:
        seeds = streams.integers("training environments", num_envs)
        collector = collector_class(config)(
            env, seeds, normalizer=normalizer, reward_normalizer=reward_normalizer, will_checkpoint=will_checkpoint
        )
        collector.gather = ranks.gather
    if normalizer is not None:
        normalizer.everyone = ranks.everyone
    if reward_normalizer is not None:
        reward_normalizer.everyone = ranks.everyone
    buffers = make_buffers(
        config.buffers,
        ALGORITHMS[config.algorithm.name].buffers,
        spaces=spaces,
        num_envs=num_envs,
        stream=streams.generator,
        steps=-(-config.training.total_timesteps // ranks.count),
        free_bytes=ram.available() // ranks.count,
        ranks=ranks.count,
        normalizer=normalizer,
        reward_normalizer=reward_normalizer,
    )
    return spaces, num_envs, collector, normalizer, reward_normalizer, Buffers(buffers)


def complete(run: Run, callbacks: Sequence[Callback], rng: np.random.Generator) -> None:
    """Give a run what stands beside its loop: evaluation, environments of phases, callbacks."""
    config, collector, phases = run.config, run.collector, run.scheduler.phases
    run.threshold = threshold_of(config, phases, run.spaces, collector.env if collector else None)
    if config.environment.id:
        run.evaluator = Evaluator(
            config.training.evaluation,
            run.algorithm,
            lambda count: evaluation_environments(config.environment, count, collector),
            run.streams,
            rng=rng,
            normalizer=run.normalizer,
        )
    if collector is not None:
        run.enter = PhaseEnvironments(config.environment, phases, collector, run.streams).enter
    for learner in run.learners.values():
        learner.ranks = run.ranks
    if run.evaluator is not None and config.training.evaluation.background:
        run.background = Deferred(run.evaluator)
        run.callbacks.append(run.background)
    if run.ranks.rank == 0:  # it decides, and the others follow
        own = (CALLBACKS[choice.name](choice.config) for choice in config.training.callbacks)
        run.callbacks += [EarlyStop(config.training.stop, run.threshold), *callbacks, *own]
    else:
        run.callbacks.append(Following())
    preflight.decline_compiling(run)


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
    def under_way(self) -> tuple[int, str]:
        """(position with the steps of the rollout that is being collected, what else is going on), for the console."""
        collector, steps = self.collector, 0
        if collector is not None and self.scheduler.budget.unit == "env_steps":
            steps = collector.under_way * collector.num_envs * self.ranks.count
        return self.position + steps, "" if self.evaluator is None else self.evaluator.under_way

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
