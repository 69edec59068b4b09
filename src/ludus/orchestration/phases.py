"""The phases of a run: what they change in the algorithm's settings, and how many updates they plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ludus.algorithms import AlgorithmConfig
from ludus.config.schema import ExperimentConfig
from ludus.config.training import Phase
from ludus.data.buffers import Buffers
from ludus.errors import ConfigError
from ludus.text import did_you_mean


def phase_configs(config: ExperimentConfig, phases: Sequence[Phase], num_envs: int) -> list[AlgorithmConfig]:
    """The algorithm's config as each phase changes it."""
    base = config.algorithm.config
    return [changed_settings(base, phase.set, f"training.phases.{phase.name}.set", num_envs) for phase in phases]


def run_phases(config: ExperimentConfig, cycle: tuple[str | dict[str, Any], ...]) -> tuple[Phase, ...]:
    """The phases of a run; without any it repeats the algorithm's `cycle`, or what is left of it without collecting."""
    if config.training.phases:
        return config.training.phases
    if not config.training.offline:
        return (Phase(name="train", hooks=cycle),)
    names = Phase(name="train", hooks=cycle).hook_names
    return (Phase(name="train", type="offline", hooks=tuple(name for name in names if name != "collect")),)


def planned_updates(config: ExperimentConfig, num_envs: int) -> dict[int, int]:
    """Steps in a full minibatch -> the approximate number of updates with it; decides what is compiled."""
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


def changed_settings(base: AlgorithmConfig, changes: Mapping[str, Any], where: str, num_envs: int) -> AlgorithmConfig:
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


def check_buffer_names(phases: Sequence[Phase], buffers: Buffers, own: Collection[str]) -> None:
    """Refuse a phase whose buffer does not exist, and a buffer that neither the algorithm nor a phase uses."""
    for phase in phases:
        if phase.buffer is not None and phase.buffer not in buffers:
            where = f"training.phases.{phase.name}.buffer"
            raise ConfigError(where, f"there is no buffer '{phase.buffer}'", did_you_mean(phase.buffer, buffers))
    used = {*own, *(phase.buffer for phase in phases if phase.buffer is not None)}
    for name in buffers:
        if name not in used:
            remedy = did_you_mean(name, sorted(used)) if used else "remove it: this algorithm learns from no buffer"
            raise ConfigError(f"buffers.{name}", "neither the algorithm nor a phase uses it", remedy)
