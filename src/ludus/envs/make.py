"""From a config to environments: the rest of the lab calls `make_vector` and `make_env`.

`resolve` turns a config into a Recipe, in which all names and arguments are looked up and checked.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from ludus.envs import catalog
from ludus.envs.check import probe as probe_env
from ludus.envs.deadline import close
from ludus.envs.recipe import Recipe, WrapperCall
from ludus.envs.spaces import EnvInfo
from ludus.envs.suites import old_api, suite_of
from ludus.envs.vector import Unsuited, VectorEnv
from ludus.errors import ConfigError
from ludus.registry import WRAPPERS, UnknownName
from ludus.text import did_you_mean

if TYPE_CHECKING:
    from ludus.config.schema import Environment, Wrapper

ENVS_PER_CORE = 8


def make_vector(
    cfg: Environment, *, num_envs: int | None = None, render_mode: str | None = None, **overrides: object
) -> VectorEnv:
    """The environments of a config on the backend it asks for; `overrides` replace its fields."""
    cfg = type(cfg).model_validate({**cfg.model_dump(), **overrides}) if overrides else cfg
    recipe = resolve(cfg, render_mode)
    count = num_envs or number_of_envs(cfg)
    alone = suite_of(cfg.id).alone
    if cfg.vectorization == "async" or (alone and cfg.vectorization == "auto" and count > 1 and render_mode != "human"):
        from ludus.envs.vector.workers import AsyncVectorEnv

        workers = cfg.workers or (count if alone else cores())
        restart = cfg.on_worker_death == "restart"
        return AsyncVectorEnv(recipe, count, workers=workers, deadline=cfg.step_deadline, restart=restart)
    if cfg.vectorization == "envpool":
        from ludus.envs.vector import envpool

        return envpool.build(recipe, count, threads=cfg.workers or cores())
    if cfg.vectorization in ("auto", "native"):
        found = _native(recipe, count, cfg.workers or cores(), insist=cfg.vectorization == "native")
        if found is not None:
            return found
    from ludus.envs.vector.stepper import SyncVectorEnv

    recipe.check()
    return SyncVectorEnv(recipe, count)


def make_env(cfg: Environment, *, render_mode: str | None = None) -> gym.Env:
    """One environment with its wrappers and supported spaces."""
    return resolve(cfg, render_mode).make()


def describe(cfg: Environment) -> EnvInfo:
    """Facts about the environment of a config, after the start-up check."""
    return resolve(cfg).check()


def probe(cfg: Environment) -> list[str]:
    """Warnings about an environment whose episodes do not follow from seed and actions."""
    env = make_env(cfg)
    try:
        return probe_env(env, cfg.id, cfg.step_deadline)
    finally:
        close(env, f"environment {cfg.id}", cfg.step_deadline)


def number_of_envs(cfg: Environment) -> int:
    """How many environments a config asks for; `auto` is eight per core."""
    return ENVS_PER_CORE * cores() if cfg.num_envs == "auto" else cfg.num_envs


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resolve(cfg: Environment, render_mode: str | None = None) -> Recipe:
    """Look up the id, the wrappers and their arguments; refuse unknown ones before anything is made."""
    spec = replace(catalog.find(cfg.id), order_enforce=False)  # we always reset first
    if cfg.kwargs and cfg.vectorization != "envpool":  # EnvPool has other options
        _require_arguments(cfg, spec)
    wrappers = wrapper_calls(cfg)
    if spec.entry_point is not None and cfg.vectorization != "envpool":
        insist = any(getattr(call.cls, "adapts", False) for call in wrappers)
        spec = old_api.adapted(spec, catalog.creator(cfg.id, spec.entry_point), insist=insist)
    kwargs = cfg.kwargs
    if kwargs.get("obs_type") == "objects" and cfg.id.startswith("ALE/"):
        from ludus.envs.suites.atari import extractor

        where = "environment.kwargs.obs_type"
        wrappers = (WrapperCall(where, WRAPPERS[extractor(where, spec.kwargs["game"])], {}), *wrappers)
        kwargs = {**kwargs, "obs_type": "ram"}
    return Recipe(spec, kwargs, wrappers, cfg.max_episode_steps, cfg.reward_threshold, render_mode, cfg.step_deadline)


def wrapper_calls(cfg: Environment) -> tuple[WrapperCall, ...]:
    """The wrappers of a config, the innermost first, with checked arguments."""
    return (*_listed(cfg), *_pipeline(cfg))


def _listed(cfg: Environment) -> list[WrapperCall]:
    """The wrappers of the config, after the one that its suite needs unless the config has a replacement."""
    calls = [_call(i, wrapper) for i, wrapper in enumerate(cfg.wrappers)]
    needed = suite_of(cfg.id).observe
    if needed and not any(getattr(call.cls, "observes", False) for call in calls):
        calls.insert(0, WrapperCall(f"environment.id ({needed})", WRAPPERS[needed], {}))
    return calls


def _pipeline(cfg: Environment) -> Iterator[WrapperCall]:
    """The wrappers that fields of the config ask for, outside of the listed ones."""
    if cfg.valid_actions is not None:
        yield WrapperCall("environment.valid_actions", WRAPPERS["remap_actions"], {"mapping": [*cfg.valid_actions]})
    if cfg.frame_skip != 1:
        yield WrapperCall("environment.frame_skip", WRAPPERS["frame_skip"], {"skip": cfg.frame_skip})
    if cfg.grayscale_obs:
        yield WrapperCall("environment.grayscale_obs", WRAPPERS["grayscale"], {})
    if cfg.resize_obs:
        yield WrapperCall("environment.resize_obs", WRAPPERS["resize"], {"size": cfg.resize_obs})
    if cfg.frame_stack > 1:
        yield WrapperCall("environment.frame_stack", WRAPPERS["frame_stack"], {"frames": cfg.frame_stack})


def _native(recipe: Recipe, num_envs: int, threads: int, *, insist: bool) -> VectorEnv | None:
    from ludus.envs.vector import native

    try:
        return native.build(recipe, num_envs, threads=threads, equal=not insist)
    except Unsuited as reason:
        if insist:
            problem = f"'{recipe.id}' cannot run natively: {reason}"
            raise ConfigError("environment.vectorization", problem, "use auto, sync or async") from None
        return None


def _require_arguments(cfg: Environment, spec: EnvSpec) -> None:
    for reserved in ("render_mode", "max_episode_steps"):
        if reserved in cfg.kwargs:
            remedy = "use environment.max_episode_steps" if reserved == "max_episode_steps" else "the command sets it"
            raise ConfigError(f"environment.kwargs.{reserved}", "is no constructor argument here", remedy)
    _known(catalog.creator(cfg.id, spec.entry_point), "environment.kwargs", cfg.kwargs)
    allowed = suite_of(cfg.id).arguments
    for key in cfg.kwargs if allowed else ():
        if key not in allowed:
            raise ConfigError(f"environment.kwargs.{key}", "may not be set by a config", f"known: {', '.join(allowed)}")


def _call(i: int, wrapper: Wrapper) -> WrapperCall:
    where = f"environment.wrappers.{i}"
    try:
        cls = WRAPPERS[wrapper.id]
    except UnknownName as error:
        raise ConfigError(f"{where}.id", f"unknown wrapper '{wrapper.id}'", error.remedy) from None
    where = f"{where} ({wrapper.id})"
    arguments = {
        parameter.name: _validated(f"{where}.{parameter.name}", parameter, wrapper.arguments)
        for parameter in _known(cls, where, wrapper.arguments, first=1)  # after the environment
        if parameter.name in wrapper.arguments or parameter.default is parameter.empty
    }
    return WrapperCall(where, cls, {**wrapper.arguments, **arguments})


def _known(call: Callable[..., object], where: str, given: Iterable[str], first: int = 0) -> list[inspect.Parameter]:
    """Named parameters from the `first` on, after a check that those given are known; none if it takes any keyword."""
    try:
        parameters = list(inspect.signature(call, eval_str=True).parameters.values())
    except NameError:  # annotations that are imported for type checkers only
        parameters = [p.replace(annotation=p.empty) for p in inspect.signature(call).parameters.values()]
    if any(p.kind == p.VAR_KEYWORD for p in parameters):
        return []
    names = [parameter.name for parameter in parameters[first:]]
    for key in given:
        if key not in names:
            raise ConfigError(f"{where}.{key}", "unknown argument", did_you_mean(key, names))
    return parameters[first:]


def _validated(where: str, parameter: inspect.Parameter, given: Mapping[str, object]) -> object:
    from pydantic import TypeAdapter, ValidationError

    if parameter.name not in given:
        raise ConfigError(where, "is missing", "this wrapper needs it")
    if parameter.annotation is parameter.empty:
        return given[parameter.name]
    try:
        return TypeAdapter(parameter.annotation).validate_python(given[parameter.name])
    except ValidationError as error:
        raise ConfigError(where, f"{error.errors()[0]['msg']}, got {given[parameter.name]!r}") from None
