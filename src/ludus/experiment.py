"""build(config): every object a run is made of, created here in reading order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from ludus import preflight
from ludus.algorithms import Algorithm, Context
from ludus.config.schema import ExperimentConfig
from ludus.data.buffers import Buffers, make_buffers
from ludus.data.collector import Collector
from ludus.data.look_ahead import collector_class
from ludus.data.normalizer import ObservationNormalizer, RewardNormalizer, make_normalizer, make_reward_normalizer
from ludus.envs.make import number_of_envs
from ludus.learning.compiled import Compiler
from ludus.learning.ranks import ALONE, Ranks
from ludus.metrics.recorder import Recorder
from ludus.metrics.sinks import Sink
from ludus.networks.encoders import is_large
from ludus.networks.precision import Precision
from ludus.orchestration.background import Deferred
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.callbacks.early_stop import EarlyStop
from ludus.orchestration.evaluator import Evaluator
from ludus.orchestration.following import Following
from ludus.orchestration.phase_scheduler import PhaseScheduler
from ludus.orchestration.phases import checked_phases, planned_updates
from ludus.registry import ALGORITHMS, CALLBACKS
from ludus.run import Run
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
    preflight.check_processes(config, ranks)
    device = preflight.pick_device(config.experiment.device, ranks)
    torch.manual_seed(Streams(config.experiment.seed).integers("weights", 1)[0])
    streams = Streams(config.experiment.seed, ranks.rank, ranks.count)
    data = experience(config, streams, will_checkpoint, ranks)
    num_envs = data.num_envs * ranks.count
    preflight.set_threads(config, large=is_large(data.spaces.observation), ranks=ranks)
    compiler, precision = planned_compiler(config, num_envs, say), Precision(config.runtime.precision)
    context = surroundings(config, data, streams, device, compiler, precision)
    with preflight.RoomForNetwork(ALGORITHMS[config.algorithm.name]):
        algorithm: Algorithm = ALGORITHMS[config.algorithm.name](config.algorithm.config, context)
    phases, settings = checked_phases(config, algorithm, data.buffers, num_envs, ranks.count)
    run = Run(
        config=config,
        ranks=ranks,
        spaces=data.spaces,
        streams=streams,
        exploration=context.rng,
        algorithm=algorithm,
        scheduler=PhaseScheduler(phases, config.training.budget, hooks=algorithm.hooks(), step_quantum=num_envs),
        phase_configs=settings,
        collector=data.collector,
        buffers=data.buffers,
        normalizer=data.normalizer,
        reward_normalizer=data.reward_normalizer,
        recorder=Recorder(sinks),
        compiler=compiler,
        precision=precision,
        say=say,
    )
    complete(run, callbacks, context.evaluation_rng)
    return run


class RunData(NamedTuple):
    """What steps come from and go to, in one rank."""

    spaces: Spaces
    num_envs: int
    collector: Collector | None
    """None in a run that learns from stored steps."""
    normalizer: ObservationNormalizer | None
    reward_normalizer: RewardNormalizer | None
    buffers: Buffers


def experience(config: ExperimentConfig, streams: Streams, will_checkpoint: bool, ranks: Ranks) -> RunData:
    """Environments and the collector that steps them, normalisers, buffers."""
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
        collector.episodes.gather = ranks.gather
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
    return RunData(spaces, num_envs, collector, normalizer, reward_normalizer, Buffers(buffers))


def planned_compiler(config: ExperimentConfig, num_envs: int, say: Callable[[str], None]) -> Compiler:
    """Compiles updates where so many are planned that it pays."""
    planned, pays_from = planned_updates(config, num_envs), config.algorithm.config.compiling_pays_from
    settings = config.runtime
    return Compiler(settings.compile, planned=planned, pays_from=pays_from, begins=settings.compile_from, announce=say)


def surroundings(
    config: ExperimentConfig,
    data: RunData,
    streams: Streams,
    device: torch.device,
    compiler: Compiler,
    precision: Precision,
) -> Context:
    """What the algorithm is given to live in."""
    return Context(
        spaces=data.spaces,
        network=config.network,
        num_envs=data.num_envs,
        device=device,
        rng=streams.generator("exploration"),
        evaluation_rng=streams.generator("evaluation"),
        collector=data.collector,
        buffers=data.buffers,
        compiler=compiler,
        precision=precision,
    )


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
