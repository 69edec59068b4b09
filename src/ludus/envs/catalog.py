"""From an environment id to its Gymnasium spec, or to one line that says what is missing.

Importing this module imports no Gymnasium: `ludus env list` tells the suites without it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ludus.envs.suites import mujoco
from ludus.errors import ConfigError, Missing, MissingExtra
from ludus.text import did_you_mean

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

WHERE = "environment.id"
DMC = "dmc/"
MEMORY_GYM = "pip install 'ludus[video]' and then pip install --no-deps memory-gym, which pins old versions"


class Suite(NamedTuple):
    """Ids that an optional package registers when it is imported."""

    prefix: str
    module: str
    extra: str
    package: str = ""
    """What the extra installs, where `module` is ours."""
    observe: str = ""
    """Wrapper that makes its observations ones we take, unless the config has another one that does."""
    install: str = ""
    """How to get it when it is in no extra."""
    alone: bool = False
    """One environment fills a process: `auto` gives each a worker of its own."""


SUITES = (
    Suite("Bandit", "ludus.envs.suites.bandit", ""),
    Suite("TMaze", "ludus.envs.suites.t_maze", ""),
    Suite("LookAndFeel", "ludus.envs.suites.look_and_feel", ""),
    Suite("ProofOfMemory", "ludus.envs.suites.proof_of_memory", ""),
    Suite("PocMemoryEnv", "ludus.envs.suites.proof_of_memory", ""),
    Suite("PoMEnv", "ludus.envs.suites.proof_of_memory", ""),
    Suite("Recall/", "ludus.envs.suites.recall_concentration", ""),
    Suite("Tiger-", "ludus.envs.suites.pomdp", ""),
    Suite("RiverSwim-", "ludus.envs.suites.pomdp", ""),
    Suite("SparseRewardPOMDP-", "ludus.envs.suites.pomdp", ""),
    Suite("ALE/", "ludus.envs.suites.atari", "atari", "ale_py"),
    Suite("MiniGrid-", "minigrid", "minigrid", observe="minigrid_symbols"),
    Suite("BabyAI-", "minigrid", "minigrid", observe="minigrid_symbols"),
    Suite("dmc/", "ludus.envs.suites.dmc", "dmc", "dm_control"),
    Suite("dm_control/", "shimmy", "dmc"),
    Suite("Vizdoom", "vizdoom.gymnasium_wrapper", "vizdoom"),
    Suite("VizDoom-", "ludus.envs.suites.vizdoom", "vizdoom", "vizdoom"),
    Suite("Retro/", "ludus.envs.suites.retro", "retro", "stable_retro", alone=True),
    Suite("MemoryGym/", "ludus.envs.suites.memory_gym", "", "memory_gym", install=MEMORY_GYM),
    Suite("brax/", "ludus.envs.suites.brax", "brax", "brax"),
)
EXTRAS = {
    "gymnasium.envs.box2d": "box2d",
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.classic_control": "video",
    "gymnasium.envs.toy_text": "video",
    "vizdoom.gymnasium_wrapper": "vizdoom",
    "ludus.envs.suites.vizdoom": "vizdoom",
    "ludus.envs.suites.retro": "retro",
    "ludus.envs.suites.brax": "brax",
}
"""Entry-point package -> the extra that holds what it may miss."""

_HEADLESS = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
_set_by_us: set[str] = set()
_told: set[str] = set()
"""Ids of former versions that were mentioned."""


def find(id: str) -> EnvSpec:
    """The spec of a registered id; its suite is imported first."""
    if ":" in id:
        raise ConfigError(WHERE, f"'{id}' names a module", "load your code with --plugin and give the bare id")
    id = _current(id)
    for suite in SUITES:
        if id.startswith(suite.prefix):
            _import(suite, id)
    import gymnasium as gym

    spec = gym.registry.get(id)
    if spec is None:
        raise _unknown(id)
    return spec


def load_all() -> None:
    """Import every suite that is installed, so that the registry holds its ids."""
    for suite in SUITES:
        with contextlib.suppress(ConfigError):
            _import(suite, "")


def observer(id: str) -> str:
    """The wrapper by which a suite's observations become ones we take; none: they are."""
    return next((suite.observe for suite in SUITES if id.startswith(suite.prefix)), "")


def creator(id: str, entry_point: Any) -> Any:
    """The constructor behind an entry point; a missing package is named with its extra."""
    import gymnasium as gym
    from gymnasium.envs.registration import load_env_creator

    if callable(entry_point):
        return entry_point
    try:
        with quiet(entry_point):
            return load_env_creator(entry_point)
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise missing(id, entry_point, error) from error


def missing(id: str, entry_point: Any, error: Exception) -> ConfigError:
    """The extra that would help, as far as it is known."""
    for package, extra in EXTRAS.items():
        if str(entry_point).startswith(package):
            return MissingExtra(f"{WHERE}: {id}", extra)
    return ConfigError(WHERE, f"'{id}' cannot be imported: {error}", "install the package it comes from")


def alone(id: str) -> bool:
    """Whether one environment fills a process."""
    return any(suite.alone and id.startswith(suite.prefix) for suite in SUITES)


def headless(render_mode: str | None) -> None:
    """Keep SDL silent and windowless, unless a window is what was asked for."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    mujoco.draw_unseen()
    for name, value in _HEADLESS.items():
        if render_mode == "human" and name in _set_by_us:
            os.environ.pop(name, None)
            _set_by_us.discard(name)
        elif render_mode != "human" and name not in os.environ:
            os.environ[name] = value
            _set_by_us.add(name)


@contextmanager
def quiet(entry_point: Any = None) -> Iterator[None]:
    """Box2D's SWIG types warn on import, and break under `-W error`; MuJoCo at every half-cheetah."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "builtin type .*", DeprecationWarning)
        if str(entry_point).startswith(mujoco.ENTRY_POINT):
            mujoco.hush()
        yield


def _import(suite: Suite, id: str) -> None:
    mujoco.draw_unseen()  # DM Control imports MuJoCo
    try:
        importlib.import_module(suite.module)
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] != (suite.package or suite.module).split(".")[0]:
            raise
        if suite.extra:
            raise MissingExtra(f"{WHERE}: {id}", suite.extra) from error
        raise Missing(f"{WHERE}: {id}", "an optional package is missing", suite.install) from error


def _current(id: str) -> str:
    """The id as it is spelled today; said once when that is another environment."""
    newer = mujoco.successor(id)
    if newer and id not in _told:
        _told.add(id)
        print(f"ludus: {WHERE}: '{id}' is '{newer}' here: the same task, maintained", file=sys.stderr, flush=True)
    return newer or id


def _unknown(id: str) -> ConfigError:
    import gymnasium as gym
    from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id

    for suite in SUITES:
        if not suite.extra and not suite.install:
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
    import gymnasium as gym

    remedy = did_you_mean(id, gym.registry)
    return remedy if remedy.startswith("did") else "see `ludus train --list-envs`"  # all the ids would be a page
