"""The phases of a run: what they change in the algorithm's settings, and how many updates they plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

from pydantic import ValidationError

from ludus.algorithms import Algorithm, AlgorithmConfig
from ludus.config.model import Model
from ludus.config.schema import ExperimentConfig
from ludus.config.training import Phase
from ludus.data.buffers import Buffers
from ludus.errors import ConfigError
from ludus.progress import Unit
from ludus.text import did_you_mean
from ludus.types import Report

M = TypeVar("M", bound=Model)


def checked_phases(
    config: ExperimentConfig, algorithm: Algorithm, buffers: Buffers, num_envs: int, ranks: int = 1
) -> tuple[tuple[Phase, ...], list[AlgorithmConfig]]:
    """The phases of a run and the algorithm's config in each; what can never work is refused.

    `num_envs` are those of all ranks, `buffers` those of one.
    """
    phases = run_phases(config, algorithm.default_cycle)
    check_buffer_names(phases, buffers, algorithm.buffers)
    settings = phase_configs(config, phases, num_envs)
    for phase, cfg in zip(phases, settings, strict=True):
        own = cfg
        if ranks > 1:
            own = cfg.of_one_rank(ranks)
            own.check(num_envs // ranks)
        algorithm.check(own, phase.buffer)
    return phases, settings


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
    for key in base.fixed.intersection(changes):
        raise ConfigError(f"{where}.{key}", "is fixed for the whole run", "set it under algorithm")
    found = changed(base, changes, where)
    found.check(num_envs)
    return found


def changed(base: M, changes: Mapping[str, Any], where: str) -> M:
    """A section with some fields changed, checked like any config."""
    known = type(base).model_fields
    for key in changes:
        if key not in known:
            raise ConfigError(f"{where}.{key}", "unknown field", did_you_mean(key, known))
    try:
        return type(base).model_validate({**base.model_dump(), **changes})
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}.{path}", first["msg"]) from None


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


@dataclass(frozen=True)
class HookCall:
    """A hook in a cycle with its repeat count, or its ratio to environment steps."""

    name: str
    repeats: int = 1
    per_env_step: Fraction | None = None


def parse_cycle(phase: Phase, hooks: Sequence[str]) -> list[HookCall]:
    """The hooks of one cycle; names that the algorithm does not have are refused."""
    calls = []
    for i, item in enumerate(phase.hooks):
        where = f"training.phases.{phase.name}.hooks[{i}]"
        if isinstance(item, str):
            item = {item: 1}
        if len(item) != 1:
            raise ConfigError(where, "one hook per entry", "write a list of hooks")
        ((name, count),) = item.items()
        if name not in hooks:
            raise ConfigError(where, f"unknown hook '{name}'", did_you_mean(name, hooks))
        calls.append(parse_call(name, count, where))
    return calls


def parse_call(name: str, count: Any, where: str) -> HookCall:
    """A hook with its count, `3` or `{per_env_step: 0.5}`."""
    if isinstance(count, dict) and set(count) == {"per_env_step"}:
        with suppress(ValueError, ZeroDivisionError):  # infinity, a word, 1/0
            ratio = Fraction(str(count["per_env_step"]))
            if ratio > 0:
                return HookCall(name, per_env_step=ratio)
    elif isinstance(count, int) and not isinstance(count, bool) and count >= 1:
        return HookCall(name, repeats=count)
    raise ConfigError(where, f"'{name}: {count}' is no repeat count", "use a whole number or {per_env_step: ratio}")


def check_phase(phase: Phase, unit: Unit = "env_steps") -> None:
    """Refuse a phase that could never end, or whose hooks contradict its type; `unit` is what the run is counted in."""
    where = f"training.phases.{phase.name}"
    names = set(phase.hook_names)
    if phase.type != "online" and "collect" in names:
        raise ConfigError(where, f"an {phase.type} phase cannot collect", "make it online or remove the hook")
    if phase.type == "eval_only" and names != {"evaluate"}:
        raise ConfigError(where, "an eval_only phase has only the hook evaluate", "remove the other hooks")
    limits = (phase.duration_updates, phase.duration_cycles)
    budgeted = phase.type == "offline" and unit == "updates"
    if phase.type != "online" and not any(limits) and not budgeted:
        raise ConfigError(
            where, f"an {phase.type} phase never ends by itself", "set duration_updates or duration_cycles"
        )
    if phase.type == "online" and "collect" not in names and not any(limits):
        raise ConfigError(where, "nothing in it steps the environment, so it never ends", "add collect or a duration")


def check_returned(hook: str, report: object) -> None:
    """Refuse what is no Report, or one that counts backwards: its run would never end."""
    if not isinstance(report, Report) or min(report.env_steps, report.updates) < 0:
        raise ConfigError(f"hook '{hook}'", f"returned {report!r}", "a hook returns a Report of what it did, 0 or more")


def check_report(phase: Phase, report: Report) -> None:
    """Refuse what a hook did if the type of its phase rules it out."""
    if phase.type == "online":
        return
    where = f"training.phases.{phase.name}.type"
    if report.env_steps:
        raise ConfigError(where, f"a hook stepped environments in an {phase.type} phase", "make it online")
    if phase.type == "eval_only" and report.updates:
        raise ConfigError(where, "a hook updated weights in an eval_only phase", "make it offline or online")
