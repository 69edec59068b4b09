"""build(config): every object a run is made of, created here in reading order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ludus import preflight
from ludus.algorithms import Algorithm, Context
from ludus.config.compose import dump
from ludus.config.schema import Environment, ExperimentConfig
from ludus.console.live import Console
from ludus.data.buffers import Buffers, make_buffers
from ludus.data.collector import Collector
from ludus.data.look_ahead import LookAheadCollector
from ludus.data.normalizer import ObservationNormalizer, RewardNormalizer
from ludus.envs.make import number_of_envs
from ludus.errors import ConfigError
from ludus.home import Home, header, make_sinks
from ludus.learning.compiled import Compiler
from ludus.metrics.recorder import Recorder
from ludus.metrics.sinks import Sink
from ludus.metrics.sinks.jsonl import read_rows
from ludus.networks.encoders import is_large
from ludus.networks.precision import Precision
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.orchestration.callbacks.control import Control
from ludus.orchestration.callbacks.debug import Debug
from ludus.orchestration.callbacks.early_stop import EarlyStop
from ludus.orchestration.callbacks.videos import Videos
from ludus.orchestration.callbacks.watching import Bounds, Idle, Status
from ludus.orchestration.evaluator import Evaluator
from ludus.orchestration.phase_scheduler import PhaseScheduler
from ludus.orchestration.phases import check_buffer_names, phase_configs, planned_updates, run_phases
from ludus.registry import ALGORITHMS, CALLBACKS
from ludus.run import Run
from ludus.run_environments import (
    PhaseEnvironments,
    about_environments,
    evaluation_environments,
    rendered_environment,
    spaces_of_stored_steps,
    threshold_of,
    training_environments,
)
from ludus.runs.store import RunFolder
from ludus.seeding import Streams
from ludus.switches import session_logs
from ludus.types import Spaces
from ludus.watch import ram
from ludus.watch.alert_command import AlertCommand
from ludus.watch.monitor import Monitor
from ludus.watch.rules import Rules
from ludus.watch.stalled import Stalled
from ludus.watch.vitals import Vitals, one_decision


def build(
    config: ExperimentConfig,
    *,
    home: Home | None = None,
    sinks: Sequence[Sink] = (),
    callbacks: Sequence[Callback] = (),
    will_checkpoint: bool = False,
) -> Run:
    """A wired run, ready for `.run()`.

    It is saved, logged and shown only with a `home`. With `will_checkpoint` its environments find out first how they
    can be restored.
    """
    streams, will_checkpoint = Streams(config.experiment.seed), will_checkpoint or home is not None
    device = preflight.pick_device(config.experiment.device)
    torch.manual_seed(streams.integers("weights", 1)[0])

    env = training_environments(config)
    spaces = Spaces(env.observation_space, env.action_space) if env else spaces_of_stored_steps(config)
    num_envs = env.num_envs if env else number_of_envs(config.environment)
    preflight.set_threads(config, large=is_large(spaces.observation))
    normalizer = make_normalizer(config.environment, spaces)
    reward_normalizer = make_reward_normalizer(config, num_envs)
    algorithm_class = ALGORITHMS[config.algorithm.name]
    collector = None
    if env is not None:
        seeds = streams.integers("training environments", num_envs)
        collector = collector_for(config, algorithm_class)(
            env, seeds, normalizer=normalizer, reward_normalizer=reward_normalizer, will_checkpoint=will_checkpoint
        )

    buffers = Buffers(
        make_buffers(
            config.buffers,
            algorithm_class.buffers,
            spaces=spaces,
            num_envs=num_envs,
            stream=streams.generator,
            steps=config.training.total_timesteps,
            free_bytes=ram.available(),
            normalizer=normalizer,
            reward_normalizer=reward_normalizer,
        )
    )

    planned, precision = planned_updates(config, num_envs), Precision(config.runtime.precision)
    compiler = Compiler(config.runtime.compile, planned=planned, announce=home.say if home else lambda _: None)
    exploration, evaluation_rng = streams.generator("exploration"), streams.generator("evaluation")
    context = Context(
        spaces=spaces,
        network=config.network,
        num_envs=num_envs,
        device=device,
        rng=exploration,
        evaluation_rng=evaluation_rng,
        collector=collector,
        buffers=buffers,
        compiler=compiler,
        precision=precision,
    )
    with preflight.RoomForNetwork():
        algorithm: Algorithm = algorithm_class(config.algorithm.config, context)

    phases = run_phases(config, algorithm.default_cycle)
    check_buffer_names(phases, buffers, algorithm_class.buffers)
    settings = phase_configs(config, phases, num_envs)
    for phase, cfg in zip(phases, settings, strict=True):
        algorithm.check(cfg, phase.buffer)
    threshold = threshold_of(config, phases, spaces, env)
    evaluator = Evaluator(
        config.training.evaluation,
        algorithm,
        lambda count: evaluation_environments(config.environment, count, collector),
        streams,
        rng=evaluation_rng,
        normalizer=normalizer,
    )
    hooks = [*algorithm.hooks(), "evaluate"]
    run = Run(
        config=config,
        spaces=spaces,
        streams=streams,
        exploration=exploration,
        algorithm=algorithm,
        scheduler=PhaseScheduler(phases, config.training.budget, hooks=hooks, step_quantum=num_envs),
        phase_configs=settings,
        collector=collector,
        phase_environments=PhaseEnvironments(config.environment, phases, collector, streams) if collector else None,
        buffers=buffers,
        normalizer=normalizer,
        reward_normalizer=reward_normalizer,
        evaluator=evaluator if config.environment.id else None,
        threshold=threshold,
        recorder=Recorder(sinks),
        compiler=compiler,
        precision=precision,
        callbacks=[
            EarlyStop(config.training.stop, threshold),
            *callbacks,
            *(CALLBACKS[choice.name](choice.config) for choice in config.training.callbacks),
        ],
    )
    decline_compiling(run, device)
    if home is not None:
        settle(run, home)
    return run


def settle(run: Run, home: Home) -> None:
    """Give a run its folder, and with it everything that saves and watches it; then load the state it begins with."""
    config, run.say = run.config, home.say
    memory, *warnings = preflight.check(run, home.root)
    folder = home.open(run)
    run.buffers.attach(folder.path / "buffers")
    about = {"config": dump(config), "meta": home.meta}
    checkpoints = Checkpoints(
        folder.path, config.training.checkpoints, warn=home.warn, about=about, confirm=home.confirm
    )
    run.monitor = Monitor(Rules.load(), threshold=run.threshold, action_space=run.spaces.action)
    videos = Videos(
        folder.path,
        config.training.evaluation.video,
        lambda: rendered_environment(config.environment),
        run.streams,
        warn=home.say,
    )
    run.callbacks += [
        Status(folder.set_status),
        Bounds(),
        Control(folder.path, checkpoints.request),
        *([Debug(folder.path)] if home.debug else []),
        checkpoints,  # after everything that changes the state it saves
        *([videos] if config.training.evaluation.video.every_evaluations else []),
        Idle(run.monitor),
    ]
    home.begin(run)
    if home.debug:
        run.compiler.decline("--debug looks into every layer")
    show(run, home, folder, memory, [*warnings, *about_environments(run)])


def show(run: Run, home: Home, folder: RunFolder, memory: str, warnings: Sequence[str]) -> None:
    """Open files, alerts and the console; after the state was loaded, because they continue where it stands."""
    config, monitor = run.config, run.monitor
    assert monitor is not None
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
    if home.program:
        command = AlertCommand(home.program, folder.id, cwd=home.working_directory)
        monitor.listeners.append(command)
        run.closing.callback(command.close)
    run.recorder.sinks += [*make_sinks(config, folder), monitor]
    if config.logging.stalled_seconds:
        run.recorder.sinks.append(Stalled(monitor, config.logging.stalled_seconds))
    copy = folder.log if session_logs() else None
    run.console = home.console = Console(monitor=monitor, copy=copy, quiet=home.silent)
    run.console.replay(earlier)
    facts = header(run, folder, home.title, memory)
    run.console.start(facts, run.scheduler.budget, position=run.position, threshold=run.threshold)
    for sink in run.recorder.sinks:
        if sink.warning:
            home.warn(sink.warning)
            if not session_logs():
                folder.log(sink.warning)
    for warning in warnings:
        run.console.note(warning, "yellow")
    run.recorder.sinks.append(run.console)


@dataclass(frozen=True)
class Player:
    """A trained policy off the training loop: play, video, inspector."""

    config: ExperimentConfig
    algorithm: Algorithm
    normalizer: ObservationNormalizer | None


def build_player(config: ExperimentConfig, spaces: Spaces, state: dict[str, Any] | None) -> Player:
    """The algorithm with the weights of a checkpoint (or untrained), and nothing that could train."""
    precision = Precision(config.runtime.precision)
    if state is not None and "precision" in state:
        precision.load_state_dict(state["precision"])
    streams = Streams(config.experiment.seed)
    torch.manual_seed(streams.integers("weights", 1)[0])
    context = Context(
        spaces=spaces,
        network=config.network,
        num_envs=number_of_envs(config.environment),
        device=preflight.pick_device(config.experiment.device),
        precision=precision,
        rng=streams.generator("play"),
        evaluation_rng=streams.generator("play"),
    )
    algorithm: Algorithm = ALGORITHMS[config.algorithm.name](config.algorithm.config, context)
    normalizer = make_normalizer(config.environment, spaces)
    if state is not None:
        for name, part in algorithm.state().items():
            part.load_state_dict(state["algorithm"][name])
        if normalizer is not None:
            normalizer.load_state_dict(state["normalizer"])
    return Player(config, algorithm, normalizer)


def collector_for(config: ExperimentConfig, algorithm: type[Algorithm]) -> type[Collector]:
    """Which one collects; looking ahead means acting by a policy that learns at the same time."""
    if config.runtime.overlap and not algorithm.off_policy:
        problem = f"{config.algorithm.name} learns from its newest policy's actions only"
        raise ConfigError("runtime.overlap", problem, "set it to false, or use dqn, sac or td3")
    return LookAheadCollector if config.runtime.overlap else Collector


def make_normalizer(cfg: Environment, spaces: Spaces) -> ObservationNormalizer | None:
    """The observation normaliser the config asks for."""
    return ObservationNormalizer(cfg.normalize_obs, spaces.observation) if cfg.normalize_obs else None


def decline_compiling(run: Run, device: torch.device) -> None:
    """Say why nothing is compiled where the algorithm or the device rules it out."""
    if not any(learner.compiler for learner in run.learners.values()):
        run.compiler.decline("this algorithm compiles none with this network")
    elif device.type != "cpu":
        run.compiler.decline("they are compiled for the CPU only")


def make_reward_normalizer(config: ExperimentConfig, num_envs: int) -> RewardNormalizer | None:
    """Scales by the deviation of the return under the algorithm's own discount."""
    if not config.environment.normalize_reward:
        return None
    discount = config.algorithm.config.discount
    if discount is None:
        raise ConfigError("environment.normalize_reward", f"{config.algorithm.name} has no discount", "set it to false")
    return RewardNormalizer(num_envs, discount.start)
