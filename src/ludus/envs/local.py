"""Environments that a Python program hands in: registered under `local/Name-v0` for as long as the process lives.

Another environment of the same name gets a number, `local/Name2-v0`: a run that was trained in the first one is still
evaluated and resumed there. Equal ones share an id, so that runs of several seeds are compared as one group.
"""

from __future__ import annotations

import copy
import itertools
import pickle
import re
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from ludus.envs.suites import LOCAL as LOCAL
from ludus.errors import ConfigError

_KNOWN: dict[str, tuple[object, ...]] = {}
"""Id -> what tells its environment from others."""


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
        return _registered(type(env.unwrapped).__name__, _copies(env), (_content(env),), id)
    if callable(env):
        return _registered(getattr(env, "__name__", type(env).__name__), env, _likeness(env), id)
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


def _likeness(creator: Any) -> tuple[object, ...]:
    """Equal for creators that make the same: classes of one name and code, functions with the same code and values.

    Functions of the same module count with those that they call.
    """
    if isinstance(creator, type):
        methods = [part.__code__ for part in vars(creator).values() if isinstance(part, FunctionType)]
        return creator.__module__, creator.__qualname__, *methods
    if not hasattr(creator, "__code__"):
        return (_content(creator),)
    functions, found = [creator], list[object]()
    for function in functions:  # which grows
        values = _values(function)
        near = [one for one in values if isinstance(one, FunctionType) and one.__module__ == creator.__module__]
        functions += [one for one in near if one not in functions]
        found += [function.__code__, *(_content(value) for value in values if not any(value is one for one in near))]
    return tuple(found)


def _values(function: Any) -> list[object]:
    """What a function finds around itself: enclosed, global and default values, and the object of a method."""
    around = getattr(function, "__globals__", {})
    enclosed = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    known = [around[name] for name in sorted(_names(function.__code__)) if name in around]
    return [*enclosed, *known, getattr(function, "__defaults__", None), getattr(function, "__self__", None)]


def _names(code: CodeType) -> set[str]:
    """The names that code, also that of functions in it, looks up outside of itself."""
    return {*code.co_names}.union(*(_names(part) for part in code.co_consts if isinstance(part, CodeType)))


def _content(value: object) -> object:
    """What can be compared instead of a value, which need not have an `==` that says true or false."""
    if isinstance(value, type):  # of which a pickle would hold the name alone
        return _likeness(value)
    try:
        return pickle.dumps(value)
    except (pickle.PickleError, TypeError, AttributeError, ValueError, RuntimeError):
        return _Same(value)


class _Same:
    """Equal only to the same object."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    __hash__ = None  # type: ignore[assignment]


def _registered(name: str, creator: Callable[..., gym.Env], likeness: tuple[object, ...], id: str | None) -> str:
    """Register a creator under `id`, or under the first id of its name that is free or has its like."""
    if id is None:
        plain = re.sub(r"[^A-Za-z0-9_]+", "", name) or "Env"
        ids = (f"{LOCAL}{plain}{'' if number == 1 else number}-v0" for number in itertools.count(1))
        id = next(one for one in ids if _KNOWN.setdefault(one, likeness) == likeness)
    _KNOWN[id] = likeness

    def make(**kwargs: object) -> gym.Env:
        made = creator(**{key: value for key, value in kwargs.items() if key != "render_mode" or value is not None})
        if not isinstance(made, gym.Env):
            problem = f"{name} returned a {type(made).__name__}"
            raise ConfigError("env", problem, "it has to return a gymnasium.Env")
        return made

    gym.registry[id] = EnvSpec(id, entry_point=make)
    return id
