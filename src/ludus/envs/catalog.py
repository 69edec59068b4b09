"""From an environment id to its Gymnasium spec, or to one line that says what is missing.

Importing this module does not import Gymnasium.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import difflib
import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ludus.envs import packages
from ludus.envs.suites import SUITES, Suite, suite_of
from ludus.errors import ConfigError, Missing, MissingExtra

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
    import gymnasium as gym

    if ":" in id and id not in gym.registry:  # a config may not import code; its user may
        module, _, name = id.partition(":")
        remedy = f"add --import {id}" if name.isidentifier() else f"add --import {module} and write {name}"
        raise ConfigError(WHERE, f"'{id}' is code that is not imported", remedy)
    id = current(id)
    _import(suite_of(id), id)
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
    remedy = _suggestion(id)
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


def _bare(id: str) -> str:
    return re.sub(r"-v\d+$", "", id.lower())


def _suggestion(id: str) -> str:
    """What to type for an id that nothing registers."""
    import gymnasium as gym

    for module, (package, *prefixes) in packages.PACKAGES.items():
        if id.startswith(tuple(prefixes)):
            return packages.remedy(module, package)
    names = {_bare(known): known for known in gym.registry}
    close = difflib.get_close_matches(_bare(id), names, n=1, cutoff=0.8)
    if close:
        return f"did you mean '{names[close[0]]}'?"
    return "add --import PACKAGE for the package that registers it, or write module:Class for a class of yours"


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
