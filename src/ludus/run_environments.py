"""The environments of a run: to train in, to evaluate in, to record; or stored steps and none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ludus.config.model import Choice, Registered
from ludus.config.schema import Environment, ExperimentConfig
from ludus.config.training import Phase
from ludus.data.collector import Collector
from ludus.envs.make import cores, describe, make_vector, probe
from ludus.envs.vector import VectorEnv
from ludus.errors import ConfigError
from ludus.orchestration.phases import changed
from ludus.preflight import check_environments
from ludus.registry import ALGORITHMS, BUFFERS
from ludus.seeding import Streams
from ludus.text import duration
from ludus.types import Spaces

if TYPE_CHECKING:
    from ludus.run import Run

FIXED = frozenset({"num_envs", "normalize_obs", "normalize_reward", "reward_threshold"})
"""Settings of the environment that a phase cannot change: they belong to parts that live as long as the run."""


def training_environments(config: ExperimentConfig, num_envs: int) -> VectorEnv | None:
    """The environments that this process trains in; none for a run that takes no steps and learns from stored ones."""
    if config.training.offline and _stored_buffer(config):
        return None
    if not config.environment.id:
        problem = "the run has neither an environment nor stored steps to learn from"
        buffer = next(iter(ALGORITHMS[config.algorithm.name].buffers), "replay")
        raise ConfigError(
            "environment.id", problem, f"name one, or set buffers.{buffer} to {{type: stored, path: RUN}}"
        )
    check_environments(config)
    return make_vector(config.environment, num_envs=num_envs)


def spaces_of_stored_steps(config: ExperimentConfig) -> Spaces:
    """The spaces of the steps that a run without an environment learns from."""
    found, cfg = _stored_buffer(config), config.environment
    assert found is not None
    name, choice = found
    rolling = cfg.normalize_obs == "rolling" and choice.name != "minari"  # a data set is read before the first update
    for field, used in (("normalize_obs", rolling), ("normalize_reward", cfg.normalize_reward)):
        if used:
            problem = "its statistics come from collected steps, and this run collects none"
            raise ConfigError(f"environment.{field}", problem, "set it to false")
    return BUFFERS[choice.name].spaces_of(choice.config, f"buffers.{name}.path")


def _stored_buffer(config: ExperimentConfig) -> tuple[str, Choice] | None:
    """The first buffer that has its steps from elsewhere: its name and its settings."""
    own = Registered(BUFFERS, default="uniform").parse
    defaults = {name: own(dict(cfg)) for name, cfg in ALGORITHMS[config.algorithm.name].buffers.items()}
    chosen = {**defaults, **config.buffers}
    return next(((name, choice) for name, choice in chosen.items() if hasattr(BUFFERS[choice.name], "spaces_of")), None)


def threshold_of(
    config: ExperimentConfig, phases: Sequence[Phase], spaces: Spaces, env: VectorEnv | None
) -> float | None:
    """The return that counts as solved; an environment to evaluate in that does not fit the spaces is refused."""
    if env is not None:
        own = config.environment.reward_threshold
        return env.reward_threshold if own is None else own
    hooked = next((phase for phase in phases if "evaluate" in phase.hook_names), None)
    if not config.environment.id:
        if hooked is not None:
            where = f"training.phases.{hooked.name}.hooks"
            raise ConfigError(where, "evaluate needs an environment", "set environment.id")
        return None
    if hooked is None and not config.training.evaluation.wanted:
        if config.training.stop.eval_reward == "threshold":
            remedy = "set it to null, or training.evaluation.every_updates to a number"
            raise ConfigError("training.stop.eval_reward", "nothing is evaluated in this run", remedy)
        return config.environment.reward_threshold
    info = describe(config.environment)
    if (info.observation_space, info.action_space) != (spaces.observation, spaces.action):
        problem = "its observation or action space differs from that of the stored steps"
        raise ConfigError("environment.id", problem, "name the environment the steps come from, with the same wrappers")
    return info.reward_threshold


def evaluation_environments(cfg: Environment, count: int, collector: Collector | None) -> VectorEnv:
    """Environments to evaluate in; made anew at each reset if those of training are, too."""
    env = make_vector(cfg, num_envs=count)
    if collector is not None and collector.will_checkpoint and collector.resets_at_checkpoints:
        env.choose_snapshot_method()  # from now on its resets make new environments
    return env


def about_environments(run: Run) -> list[str]:
    """What the user should know: environments that do not follow their seed, or evaluations that are not made."""
    if run.collector is not None:
        return [*_slowness(run, run.collector.env), *probe(run.config.environment)]
    if run.evaluator is None and run.config.training.evaluation.wanted:
        return ["environment.id is not set: the run is not evaluated"]
    return []


def _slowness(run: Run, env: VectorEnv) -> list[str]:
    """What slow steps mean for the user: a short self-test of snapshots, and a first row that takes its time."""
    if not env.slow:
        return []
    steps = max(run.settings.longest_rollout * env.num_envs, run.algorithm.epoch_steps)
    several = env.backend == "sync" and env.num_envs > 1 and cores() > 1
    remedy = "; environment.vectorization=async steps it on all cores" if several else ""
    row = f"the first row comes after {steps:,} steps, in about {duration(steps * env.slow)}"
    return [f"{env.id}: a step takes {env.slow:.2g} s: the self-test of snapshots was short, and {row}{remedy}"]


class PhaseEnvironments:
    """Switches the collector to the environments of a phase and back; all are checked before the first step."""

    def __init__(self, base: Environment, phases: Sequence[Phase], collector: Collector, streams: Streams) -> None:
        self.collector, self.streams = collector, streams
        self.current = base
        for phase in phases:
            for field in FIXED.intersection(phase.environment or {}):
                where = f"training.phases.{phase.name}.environment.{field}"
                raise ConfigError(where, "is fixed for the whole run", f"set environment.{field}")
        self.wanted = {
            phase.name: changed(base, phase.environment or {}, f"training.phases.{phase.name}.environment")
            for phase in phases
        }
        for phase in phases:
            if self.wanted[phase.name] != base:
                self._check_spaces(phase)

    def enter(self, phase: Phase) -> None:
        """Called when a phase begins."""
        wanted = self.wanted[phase.name]
        if wanted == self.current:
            return
        old = self.collector.env
        new = make_vector(wanted, num_envs=old.num_envs)
        self.collector.switch(new, self.streams.integers(f"environments of phase {phase.name}", new.num_envs))
        old.close()
        self.current = wanted

    def _check_spaces(self, phase: Phase) -> None:
        info, env = describe(self.wanted[phase.name]), self.collector.env
        if (info.observation_space, info.action_space) != (env.observation_space, env.action_space):
            where = f"training.phases.{phase.name}.environment"
            raise ConfigError(where, "observation or action space differs", "phases may only use environments alike")
