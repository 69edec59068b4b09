"""From an environment id to its Gymnasium spec, or to one line that says what is missing."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, load_env_creator, parse_env_id

from ludus.errors import ConfigError, MissingExtra
from ludus.registry import nearest

WHERE = "environment.id"


class Suite(NamedTuple):
    """Ids that an optional package registers when it is imported."""

    prefix: str
    module: str
    extra: str


SUITES = (
    Suite("Bandit", "ludus.envs.suites.bandit", ""),
    Suite("ALE/", "ale_py", "atari"),
    Suite("MiniGrid-", "minigrid", "minigrid"),
    Suite("BabyAI-", "minigrid", "minigrid"),
    Suite("dm_control/", "shimmy", "dmc"),
    Suite("Vizdoom", "vizdoom.gymnasium_wrapper", "vizdoom"),
    Suite("Retro/", "stable_retro", "retro"),
)
EXTRAS = {
    "gymnasium.envs.box2d": "box2d",
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.classic_control": "video",
    "gymnasium.envs.toy_text": "video",
}
"""Entry-point package -> the extra that holds what it may miss."""

_HEADLESS = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
_set_by_us: set[str] = set()


def find(id: str) -> EnvSpec:
    """The spec of a registered id; its suite is imported first."""
    if ":" in id:
        raise ConfigError(WHERE, f"'{id}' names a module", "load your code with --plugin and give the bare id")
    for suite in SUITES:
        if id.startswith(suite.prefix):
            _import(suite, id)
    spec = gym.registry.get(id)
    if spec is None:
        raise _unknown(id)
    return spec


def creator(id: str, entry_point: Any) -> Any:
    """The constructor behind an entry point; a missing package is named with its extra."""
    if callable(entry_point):
        return entry_point
    try:
        with quiet():
            return load_env_creator(entry_point)
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise missing(id, entry_point, error) from error


def missing(id: str, entry_point: Any, error: Exception) -> ConfigError:
    """The extra that would help, as far as it is known."""
    for package, extra in EXTRAS.items():
        if str(entry_point).startswith(package):
            return MissingExtra(f"{WHERE}: {id}", extra)
    return ConfigError(WHERE, f"'{id}' cannot be imported: {error}", "install the package it comes from")


def headless(render_mode: str | None) -> None:
    """Keep SDL silent and windowless, unless a window is what was asked for."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    for name, value in _HEADLESS.items():
        if render_mode == "human" and name in _set_by_us:
            os.environ.pop(name, None)
            _set_by_us.discard(name)
        elif render_mode != "human" and name not in os.environ:
            os.environ[name] = value
            _set_by_us.add(name)


@contextmanager
def quiet() -> Iterator[None]:
    """Box2D's SWIG types warn on import, and break under `-W error`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "builtin type .*", DeprecationWarning)
        yield


def _import(suite: Suite, id: str) -> None:
    try:
        importlib.import_module(suite.module)
    except ModuleNotFoundError as error:
        if suite.extra and str(error.name).split(".")[0] == suite.module.split(".")[0]:
            raise MissingExtra(f"{WHERE}: {id}", suite.extra) from error
        raise


def _unknown(id: str) -> ConfigError:
    for suite in SUITES:
        if not suite.extra:
            _import(suite, id)  # ours are worth a suggestion
    try:
        namespace, name, version = parse_env_id(id)
    except gym.error.Error:
        return ConfigError(WHERE, f"'{id}' is not an environment id", _suggestion(id))
    latest = find_highest_version(namespace, name)
    newest = get_env_id(namespace, name, latest)
    if newest in gym.registry:
        reason = "is deprecated" if version is not None and latest is not None and version < latest else "is unknown"
        return ConfigError(WHERE, f"'{id}' {reason}", f"use '{newest}'")
    return ConfigError(WHERE, f"'{id}' is unknown", _suggestion(id))


def _suggestion(id: str) -> str:
    remedy = nearest(id, gym.registry)
    return remedy if remedy.startswith("did") else "see `ludus train --list-envs`"  # all the ids would be a page
