"""Environments that a Python program hands in: registered under `local/Name-v0` for as long as the process lives."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from ludus.errors import ConfigError


def env_id(env: str | gym.Env | Callable[[], gym.Env], id: str | None = None) -> str:
    """The id of an environment that is given as an id, an instance, or a function or class that makes one.

    With `id` it is registered under that one, and not under its own name.
    """
    if isinstance(env, str):
        return env
    if isinstance(env, gym.vector.VectorEnv):
        raise ConfigError(
            "env", "is a vector of environments", "give a function that makes one of them; Ludus vectorizes"
        )
    if isinstance(env, gym.Env):
        return _registered(type(env.unwrapped).__name__, _copies(env), id)
    if callable(env):
        return _registered(getattr(env, "__name__", type(env).__name__), env, id)
    problem = f"is a {type(env).__name__}"
    raise ConfigError("env", problem, "give an id, a Gymnasium environment, or a function or class that makes one")


def _copies(env: gym.Env) -> Callable[..., gym.Env]:
    """Makes deep copies: training, evaluation and several environments at once need one each."""
    try:
        prototype = copy.deepcopy(env)
    except (TypeError, RecursionError, NotImplementedError) as error:
        problem = f"{type(env.unwrapped).__name__} cannot be copied ({error})"
        raise ConfigError("env", problem, "give a function that makes it: env=lambda: ...") from None

    def make(**_: object) -> gym.Env:
        return copy.deepcopy(prototype)

    return make


def _registered(name: str, creator: Callable[..., gym.Env], id: str | None) -> str:
    """Register a creator; a newer one of the same name replaces it."""
    id = id or f"local/{re.sub(r'[^A-Za-z0-9_]+', '', name) or 'Env'}-v0"

    def make(**kwargs: object) -> gym.Env:
        made = creator(**{key: value for key, value in kwargs.items() if key != "render_mode" or value is not None})
        if not isinstance(made, gym.Env):
            problem = f"{name} returned a {type(made).__name__}"
            raise ConfigError("env", problem, "it has to return a gymnasium.Env")
        return made

    gym.registry[id] = EnvSpec(id, entry_point=make)
    return id
