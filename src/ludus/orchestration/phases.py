"""What a phase changes: the algorithm's settings and the environments it collects in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ludus.config.schema import Environment, ExperimentConfig, Phase
from ludus.data.collector import Collector
from ludus.envs.make import describe, make_vector
from ludus.errors import ConfigError
from ludus.seeding import Streams
from ludus.text import did_you_mean


def phase_configs(config: ExperimentConfig, phases: Sequence[Phase], num_envs: int) -> list[Any]:
    """The algorithm's config as each phase changes it."""
    base = config.algorithm.config
    return [changed_settings(base, phase.set, f"training.phases.{phase.name}.set", num_envs) for phase in phases]


def run_phases(config: ExperimentConfig, cycle: tuple[str | dict[str, Any], ...]) -> tuple[Phase, ...]:
    """The phases of a run; without any it repeats the algorithm's `cycle`, or what is left of it without collecting."""
    if config.training.phases:
        return config.training.phases
    if not config.training.offline:
        return (Phase(name="train", hooks=cycle),)
    names = (name for entry in cycle for name in ([entry] if isinstance(entry, str) else entry))
    return (Phase(name="train", type="offline", hooks=tuple(name for name in names if name != "collect")),)


def planned_updates(config: ExperimentConfig, num_envs: int) -> dict[int, int]:
    """Steps in a full minibatch -> how many updates the phases take with it, roughly: what compiling is decided by."""
    budget, found = config.training.budget, dict[int, int]()
    left = budget.total if budget.unit == "env_steps" else 0
    phases = run_phases(config, ("collect", "update"))
    for phase, cfg in zip(phases, phase_configs(config, phases, num_envs), strict=True):
        steps = min(phase.duration_steps or left, left) if phase.type == "online" else 0
        updates = cfg.planned_updates(steps, num_envs)
        limit = phase.duration_updates or phase.duration_cycles
        if phase.type == "offline":
            updates = limit or budget.total
        elif phase.duration_updates is not None:
            updates = min(updates, phase.duration_updates)
        size = cfg.full_batch(num_envs)
        if size and phase.type != "eval_only":
            found[size] = found.get(size, 0) + updates
        left -= steps
    return found


def changed_settings(base: Any, changes: Mapping[str, Any], where: str, num_envs: int) -> Any:
    """An algorithm's config with some fields changed, checked like any config."""
    for key in changes:
        if key not in type(base).model_fields:
            raise ConfigError(f"{where}.{key}", "unknown field", did_you_mean(key, type(base).model_fields))
        if key in base.fixed:
            raise ConfigError(f"{where}.{key}", "is fixed for the whole run", "set it under algorithm")
    try:
        changed = type(base).model_validate({**base.model_dump(), **changes})
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}.{path}", first["msg"]) from None
    changed.check(num_envs)
    return changed


class PhaseEnvironments:
    """Switches the collector to a phase's own environments and back; all of them are checked before the first step."""

    def __init__(self, base: Environment, phases: Sequence[Phase], collector: Collector, streams: Streams) -> None:
        self.collector, self.streams = collector, streams
        self.current = base
        self.wanted = {phase.name: changed_environment(base, phase) for phase in phases}
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


def changed_environment(base: Environment, phase: Phase) -> Environment:
    """The environment section as a phase changes it, checked like any config."""
    try:
        return Environment.model_validate({**base.model_dump(), **(phase.environment or {})})
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        where = f"training.phases.{phase.name}.environment.{path}"
        remedy = did_you_mean(path, Environment.model_fields) if first["type"] == "extra_forbidden" else ""
        raise ConfigError(where, first["msg"], remedy) from None
