"""build(config): every object a run is made of, created here in reading order; train and play start from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ludus.algorithms import Algorithm, Context
from ludus.config.schema import Environment, ExperimentConfig, Phase
from ludus.data.buffers import Buffers, make_buffers
from ludus.data.buffers.stored import StoredConfig, stored_spaces
from ludus.data.collector import Collector
from ludus.data.look_ahead import LookAheadCollector
from ludus.data.normalizer import ObservationNormalizer, RewardNormalizer
from ludus.envs.make import cores, describe, make_vector, number_of_envs
from ludus.envs.vector import VectorEnv
from ludus.errors import ConfigError
from ludus.learning.allocation import keep_freed_memory
from ludus.learning.compiled import Compiler
from ludus.learning.learner import Learner
from ludus.metrics.recorder import Recorder
from ludus.metrics.sinks import Sink
from ludus.networks.encoders import is_large
from ludus.networks.precision import Precision
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.callbacks.early_stop import EarlyStop
from ludus.orchestration.evaluator import Evaluator
from ludus.orchestration.orchestrator import Orchestrator
from ludus.orchestration.phase_scheduler import PhaseScheduler
from ludus.orchestration.phases import PhaseEnvironments, phase_configs, planned_updates, run_phases
from ludus.orchestration.preflight import RoomForNetwork, check_environments
from ludus.registry import ALGORITHMS, CALLBACKS
from ludus.seeding import GeneratorState, Streams, TorchState
from ludus.text import did_you_mean
from ludus.types import Spaces
from ludus.watch import ram


def build(
    config: ExperimentConfig,
    *,
    sinks: Sequence[Sink] = (),
    callbacks: Sequence[Callback] = (),
    announce: Callable[[str], None] = lambda _: None,
    will_checkpoint: bool = False,
) -> Orchestrator:
    """A wired run, ready for `.run()`; a `will_checkpoint` one finds out first how its environments can be restored."""
    streams = Streams(config.experiment.seed)
    device = pick_device(config.experiment.device)
    torch.manual_seed(streams.integers("weights", 1)[0])

    env = training_environments(config)
    spaces = Spaces(env.observation_space, env.action_space) if env else spaces_without_environment(config)
    num_envs = env.num_envs if env else number_of_envs(config.environment)
    set_threads(config, large=is_large(spaces.observation))
    normalizer = make_normalizer(config.environment, spaces)
    reward_normalizer = make_reward_normalizer(config, num_envs)
    algorithm_class = ALGORITHMS[config.algorithm.name]
    collector = None
    if env is not None:
        collector = collector_for(config, algorithm_class)(
            env,
            streams.integers("training environments", num_envs),
            normalizer=normalizer,
            reward_normalizer=reward_normalizer,
            will_checkpoint=will_checkpoint,
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

    compiler = Compiler(config.runtime.compile, planned=planned_updates(config, num_envs), announce=announce)
    precision = Precision(config.runtime.precision)
    rng, evaluation_rng = streams.generator("exploration"), streams.generator("evaluation")
    context = Context(
        spaces=spaces,
        network=config.network,
        num_envs=num_envs,
        device=device,
        rng=rng,
        evaluation_rng=evaluation_rng,
        collector=collector,
        buffers=buffers,
        compiler=compiler,
        precision=precision,
    )
    with RoomForNetwork():
        algorithm: Algorithm = algorithm_class(config.algorithm.config, context)
    if not any(isinstance(part, Learner) and part.compiler for part in algorithm.state().values()):
        compiler.decline("this algorithm compiles none with this network")
    elif device.type != "cpu":
        compiler.decline("they are compiled for the CPU only")

    phases = run_phases(config, algorithm.default_cycle)
    check_buffer_names(phases, buffers, algorithm_class.buffers)
    settings = phase_configs(config, phases, num_envs)
    for phase, cfg in zip(phases, settings, strict=True):
        algorithm.check(cfg, phase.buffer)
    hooks = [*algorithm.hooks(), *(["evaluate"] if config.environment.id else [])]
    scheduler = PhaseScheduler(phases, config.training.budget, hooks=hooks, step_quantum=num_envs)
    threshold = config.environment.reward_threshold
    if env is not None and threshold is None:
        threshold = env.reward_threshold
    elif env is None and will_evaluate(config, phases):
        threshold = check_evaluation_environment(config, spaces)
    evaluator = None
    if config.environment.id:
        evaluator = Evaluator(
            config.training.evaluation,
            algorithm,
            lambda count: evaluation_env(config.environment, count, collector),
            streams,
            rng=evaluation_rng,
            normalizer=normalizer,
        )
    chosen = [CALLBACKS[choice.name](choice.config) for choice in config.training.callbacks]
    enter = PhaseEnvironments(config.environment, phases, collector, streams).enter if collector else lambda _: None
    return Orchestrator(
        config,
        algorithm,
        scheduler,
        settings,
        evaluator,
        Recorder(sinks),
        callbacks=[EarlyStop(config.training.stop, threshold), *callbacks, *chosen],
        enter_phase=enter,
        threshold=threshold,
        spaces=spaces,
        stateful={
            "compiler": compiler,
            "precision": precision,
            **({"collector": collector} if collector else {}),
            "buffers": buffers,
            "torch": TorchState(),
            "exploration": GeneratorState(rng),
            **({"normalizer": normalizer} if normalizer else {}),
            **({"reward_normalizer": reward_normalizer} if reward_normalizer else {}),
        },
    )


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
        device=pick_device(config.experiment.device),
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


# ---- the parts -----------------------------------------------------------------------------------


def pick_device(name: str) -> torch.device:
    """`auto` takes an accelerator if there is one; a named device must be there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    missing = (name.startswith("cuda") and not torch.cuda.is_available()) or (
        name == "mps" and not torch.backends.mps.is_available()
    )
    if missing:
        raise ConfigError("experiment.device", f"'{name}' is not available on this machine", "use auto or cpu")
    return torch.device(name)


def set_threads(config: ExperimentConfig, *, large: bool) -> None:
    """One thread for small networks, where more only get in each other's way; never the library's default."""
    threads = config.runtime.threads
    if large:
        keep_freed_memory()
    torch.set_num_threads(threads if threads != "auto" else cores() if large else 1)


def check_buffer_names(phases: Sequence[Phase], buffers: Buffers, own: Collection[str]) -> None:
    """A phase fills and samples a buffer that is there, and every buffer is the algorithm's own or a phase's."""
    for phase in phases:
        if phase.buffer is not None and phase.buffer not in buffers:
            where = f"training.phases.{phase.name}.buffer"
            raise ConfigError(where, f"there is no buffer '{phase.buffer}'", did_you_mean(phase.buffer, buffers))
    used = {*own, *(phase.buffer for phase in phases if phase.buffer is not None)}
    for name in buffers:
        if name not in used:
            remedy = did_you_mean(name, sorted(used)) if used else "remove it: this algorithm learns from no buffer"
            raise ConfigError(f"buffers.{name}", "neither the algorithm nor a phase uses it", remedy)


def stored_buffer(config: ExperimentConfig) -> tuple[str, StoredConfig] | None:
    """The first buffer of the config that holds the steps of another run, and where it is written."""
    found = ((name, choice.config) for name, choice in config.buffers.items())
    return next(((f"buffers.{name}", cfg) for name, cfg in found if isinstance(cfg, StoredConfig)), None)


def training_environments(config: ExperimentConfig) -> VectorEnv | None:
    """The environments to train in; none for a run that takes no steps and learns from stored ones."""
    if config.training.offline and stored_buffer(config):
        return None
    if not config.environment.id:
        problem = "the run has neither an environment nor stored steps to learn from"
        raise ConfigError("environment.id", problem, "name one, or set buffers.replay to {type: stored, path: RUN}")
    check_environments(config)
    return make_vector(config.environment)


def spaces_without_environment(config: ExperimentConfig) -> Spaces:
    """The spaces of the stored steps that a run without an environment learns from."""
    found, cfg = stored_buffer(config), config.environment
    assert found is not None
    for field in ("normalize_obs", "normalize_reward"):
        if getattr(cfg, field) in (True, "rolling"):
            problem = "its statistics come from collected steps, and this run collects none"
            raise ConfigError(f"environment.{field}", problem, "set it to false")
    return stored_spaces(found[1], f"{found[0]}.path")


def will_evaluate(config: ExperimentConfig, phases: Sequence[Phase]) -> bool:
    """Whether the run evaluates, and there is an environment for it."""
    grid = config.training.evaluation
    asked = any((grid.every_epochs, grid.every_steps, grid.every_updates))
    return bool(config.environment.id) and (asked or any("evaluate" in str(phase.hooks) for phase in phases))


def check_evaluation_environment(config: ExperimentConfig, spaces: Spaces) -> float | None:
    """Refuse an environment that does not fit the stored steps; its threshold, or the config's."""
    info = describe(config.environment)
    if (info.observation_space, info.action_space) != (spaces.observation, spaces.action):
        problem = "its observation or action space differs from that of the stored steps"
        raise ConfigError("environment.id", problem, "name the environment the steps come from, with the same wrappers")
    return info.reward_threshold


def evaluation_env(cfg: Environment, count: int, collector: Collector | None) -> VectorEnv:
    """Environments to evaluate in; where a reset does not forget everything, they too are made anew at each."""
    env = make_vector(cfg, num_envs=count)
    if collector is not None and collector.will_checkpoint and collector.resets_at_checkpoints:
        env.choose_snapshot_method()  # from now on its resets make new environments
    return env


def collector_for(config: ExperimentConfig, algorithm: type[Algorithm]) -> type[Collector]:
    """Which one collects; looking ahead means acting by a policy that learns at the same time."""
    if config.runtime.overlap and not algorithm.off_policy:
        problem = f"{config.algorithm.name} learns from its newest policy's actions only"
        raise ConfigError("runtime.overlap", problem, "set it to false, or use dqn, sac or td3")
    return LookAheadCollector if config.runtime.overlap else Collector


def make_normalizer(cfg: Environment, spaces: Spaces) -> ObservationNormalizer | None:
    """The observation normaliser the config asks for."""
    return ObservationNormalizer(cfg.normalize_obs, spaces.observation) if cfg.normalize_obs else None


def make_reward_normalizer(config: ExperimentConfig, num_envs: int) -> RewardNormalizer | None:
    """Scales by the deviation of the return under the algorithm's own discount."""
    if not config.environment.normalize_reward:
        return None
    gamma = getattr(config.algorithm.config, "gamma", None)
    if gamma is None:
        raise ConfigError("environment.normalize_reward", f"{config.algorithm.name} has no discount", "set it to false")
    return RewardNormalizer(num_envs, gamma.start)
