"""Facts about a new environment: a snapshot need not hold them, because restoring begins with a new one."""

from __future__ import annotations

import copyreg
import functools
import itertools
import logging
import pickle
import types
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from ludus.envs.snapshots import mujoco
from ludus.types import State

LARGE = 256
"""Size from which an attribute is left out of a snapshot if it equals that of a new environment (Taxi's table)."""
CODE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    functools.partial,
    np.ufunc,
    np.dtype,
    logging.Logger,
)
SCREEN = ("Surface", "Clock", "Font")
"""Pygame's drawing objects."""


def layers(env: gym.Env) -> list[gym.Env]:
    """From the outermost wrapper to the environment itself."""
    found = [env]
    while isinstance(env, gym.Wrapper):
        env = env.env
        found.append(env)
    return found


def label(i: int, layer: object) -> str:
    """Name of a layer in paths and messages."""
    return f"{i}:{type(layer).__name__}"


def is_kind(value: object, package: str, name: str) -> bool:
    """An instance of a class of an optional package, without importing it."""
    return type(value).__name__ == name and getattr(type(value), "__module__", "").partition(".")[0] == package


def is_drawing(value: object, env: gym.Env) -> bool:
    """Pygame's drawing objects of a rendered environment, which follow from its state."""
    return env.render_mode is not None and any(is_kind(value, "pygame", name) for name in SCREEN)


def is_record(value: object) -> bool:
    """Whether an object consists of its attributes only, by Python's default way to copy it."""
    cls: Any = type(value)
    default = (cls.__reduce_ex__, cls.__reduce__, cls.__getstate__)
    if default != (object.__reduce_ex__, object.__reduce__, object.__getstate__) or not hasattr(value, "__dict__"):
        return False
    try:
        reduced: Any = value.__reduce_ex__(2)
    except TypeError:  # it holds more than Python knows of
        return False
    make, arguments, state, *items = reduced
    return make is copyreg.__newobj__ and arguments == (cls,) and isinstance(state, dict | None) and items == [None] * 2  # type: ignore[attr-defined]


class Reference:
    """Facts about a new environment that was never reset. Paths name attributes: `1:TimeLimit._elapsed_steps`."""

    def __init__(self, env: gym.Env) -> None:
        self.names: dict[str, set[str]] = {}
        """Path of an object -> its attributes."""
        self.code: State = {}
        """Path of a function, class or module -> which one."""
        self.records: dict[str, type] = {}
        """Path of an object that consists of attributes only -> its class."""
        self.same: dict[str, str] = {}
        """Path of a second reference to an object -> path of the first one."""
        self._large: dict[str, bytes] = {}
        self._models: dict[str, bytes] = {}
        stack = layers(env)
        self._paths = {id(layer): label(i, layer) for i, layer in enumerate(stack)}
        for i, layer in enumerate(stack):
            self._survey(layer, label(i, layer))
        self._paths = {}

    def holds_large(self, path: str, value: object) -> bool:
        """Whether a large value is unchanged."""
        return path in self._large and _pickled(value) == self._large[path]

    def holds_model(self, path: str, model: object) -> bool:
        """Whether a MuJoCo model is unchanged."""
        return self._models.get(path) == mujoco.model_bytes(model)

    def _survey(self, holder: object, path: str) -> None:
        self.names[path] = set(vars(holder))
        for name, value in vars(holder).items():
            at = f"{path}.{name}"
            if id(value) in self._paths:
                self.same[at] = self._paths[id(value)]
            elif isinstance(value, CODE):
                self.code[at] = which(value)
            elif not isinstance(value, gym.Space | EnvSpec):
                self._survey_data(value, at)

    def _survey_data(self, value: object, at: str) -> None:
        if is_kind(value, "mujoco", "MjModel"):
            self._models[at] = mujoco.model_bytes(value)
        elif is_record(value):
            self.records[at] = type(value)
        elif (pickled := _pickled(value) if _is_large(value) else None) is not None:
            self._large[at] = pickled
        elif not is_kind(value, "mujoco", "MjData") and not is_kind(value, "ale_py", "ALEInterface"):
            return
        self._paths[id(value)] = at
        if at in self.records:
            self._survey(value, at)


def which(code: object) -> object:
    """A name of the code that is equal in two environments."""
    if isinstance(code, functools.partial):
        return (functools.partial, which(code.func))
    return (type(code), getattr(code, "__module__", None), getattr(code, "__qualname__", None) or str(code))


def _is_large(value: object) -> bool:
    return next(itertools.islice(_leaves(value), LARGE, None), False) is None


def _leaves(value: object) -> Iterator[None]:
    if isinstance(value, np.ndarray):
        yield from (None for _ in range(min(value.size, LARGE + 1)))
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield None


def _pickled(value: object) -> bytes | None:
    """A pickle for comparison only; it is never loaded."""
    try:
        return pickle.dumps(value, 5)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None
