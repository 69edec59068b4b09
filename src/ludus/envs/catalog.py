"""From an environment id to its Gymnasium spec, or to one line that says what is missing.

Importing this module does not import Gymnasium.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ludus.envs.suites import SUITES, Suite, suite_of
from ludus.errors import ConfigError, Missing, MissingExtra
from ludus.text import did_you_mean

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

WHERE = "environment.id"
Creator = Callable[..., Any]
"""Makes an environment from keyword arguments: a class or a function."""
EntryPoint = Creator | str | None
"""As Gymnasium stores it: a creator, or `module:name` of one."""
MUJOCO = "gymnasium.envs.mujoco"
NOISE = "compiler attribute 'settotalmass'"
"""Part of the warning that MuJoCo prints for Gymnasium's half-cheetah whenever one is made."""
_HEADLESS = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
_set_by_us: set[str] = set()
_announced: set[str] = set()
"""Ids of former versions whose replacement was announced."""


def find(id: str) -> EnvSpec:
    """The spec of a registered id; imports its suite first."""
    if ":" in id:
        raise ConfigError(WHERE, f"'{id}' names a module", "load your code with --plugin and give the bare id")
    id = current(id)
    _import(suite_of(id), id)
    import gymnasium as gym

    spec = gym.registry.get(id)
    if spec is None:
        raise _unknown(id)
    return spec


def load_all() -> None:
    """Import every suite that is installed, so that Gymnasium's registry holds its ids."""
    for suite in SUITES:
        with contextlib.suppress(ConfigError):
            _import(suite, "")


def creator(id: str, entry_point: EntryPoint) -> Creator:
    """The constructor behind an entry point; a missing package is reported with the extra that installs it."""
    import gymnasium as gym
    from gymnasium.envs.registration import load_env_creator

    if callable(entry_point):
        return entry_point
    try:
        with quiet(entry_point):
            return load_env_creator(str(entry_point))
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise missing(id, entry_point, error) from error


def missing(id: str, entry_point: EntryPoint, error: Exception) -> ConfigError:
    """The error for an entry point that cannot be imported; it names the extra, if there is one."""
    for suite in SUITES:
        if suite.extra and str(entry_point).startswith(suite.module):
            return MissingExtra(f"{WHERE}: {id}", suite.extra)
    return ConfigError(WHERE, f"'{id}' cannot be imported: {error}", "install the package it comes from")


def headless(render_mode: str | None) -> None:
    """Keep SDL silent and without a window, unless `render_mode` asks for a window."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    render_offscreen()
    for name, value in _HEADLESS.items():
        if render_mode == "human" and name in _set_by_us:
            os.environ.pop(name, None)
            _set_by_us.discard(name)
        elif render_mode != "human" and name not in os.environ:
            os.environ[name] = value
            _set_by_us.add(name)


@contextlib.contextmanager
def quiet(entry_point: EntryPoint = None) -> Iterator[None]:
    """Suppress known warnings: Box2D's SWIG types warn on import, MuJoCo whenever a half-cheetah is made."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "builtin type .*", DeprecationWarning)
        if str(entry_point).startswith(MUJOCO):
            hush_mujoco()
        yield


def _import(suite: Suite, id: str) -> None:
    if not suite.module or suite.builtin:
        return
    render_offscreen()  # DM Control imports MuJoCo
    try:
        importlib.import_module(suite.module)
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] not in suite.needs:
            raise
        if suite.extra:
            raise MissingExtra(f"{WHERE}: {id}", suite.extra) from error
        raise Missing(f"{WHERE}: {id}", "an optional package is missing", suite.install) from error


def current(id: str) -> str:
    """The id of today's version, announced once; 2 and 3 of MuJoCo's need packages that no longer exist."""
    name, _, version = id.rpartition("-")
    if not re.fullmatch("v[234]", version) or suite_of(id).module != MUJOCO:
        return id
    newer = f"{name}-v5"
    if id not in _announced:
        _announced.add(id)
        print(f"ludus: {WHERE}: '{id}' is '{newer}' here: the same task, maintained", file=sys.stderr, flush=True)
    return newer


def _unknown(id: str) -> ConfigError:
    import gymnasium as gym
    from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id

    for suite in SUITES:
        if not suite.needs:
            _import(suite, id)  # so that ids of our own suites can be suggested
    near = did_you_mean(id, gym.registry)
    remedy = near if near.startswith("did") else "see `ludus train --list-envs`"  # all the ids would be a page
    try:
        namespace, name, version = parse_env_id(id)
    except gym.error.Error:
        return ConfigError(WHERE, f"'{id}' is not an environment id", remedy)
    latest = find_highest_version(namespace, name)
    newest = get_env_id(namespace, name, latest)
    if newest in gym.registry:
        reason = "is deprecated" if version is not None and latest is not None and version < latest else "is unknown"
        return ConfigError(WHERE, f"'{id}' {reason}", f"use '{newest}'")
    return ConfigError(WHERE, f"'{id}' is unknown", remedy)


def render_offscreen() -> None:
    """Without a display MuJoCo must know how to render before its first import: by EGL, OSMesa or not at all."""
    if sys.platform.startswith("linux") and not os.environ.get("DISPLAY") and "MUJOCO_GL" not in os.environ:
        found = (name for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")) if ctypes.util.find_library(library))
        os.environ["MUJOCO_GL"] = next(found, "disable")


def hush_mujoco() -> None:
    """Print MuJoCo's warnings to stderr instead of a log file in the working directory, except the known one."""
    import mujoco

    mujoco.set_mju_user_warning(_warn)


def _warn(text: str | bytes) -> None:
    message = text.decode() if isinstance(text, bytes) else text
    if NOISE not in message:
        print(f"mujoco: {message.strip()}", file=sys.stderr)
