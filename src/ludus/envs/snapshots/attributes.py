"""The attributes of an environment and of all its wrappers, as nodes and back.

Every attribute is handled: plain data and generators are stored; spaces, specs and code stay those of the new
environment; known parts (MuJoCo, ALE) have their own functions; an object that consists of attributes is stored by
them. Any other attribute raises Refused.
"""

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

from ludus.envs.snapshots import Refused, ale, mujoco
from ludus.envs.snapshots.values import GENERATORS, LEAVES, Node, ValueDecoder, ValueEncoder, is_minigrid
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
_AS_MADE: Any = object()
"""Marks a value that is not stored, because a new environment has it."""


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
    """Facts about a new environment that was never reset; a snapshot need not hold them, for restoring begins with one.

    Paths name attributes: `1:TimeLimit._elapsed_steps`.
    """

    def __init__(self, env: gym.Env) -> None:
        self.facts: dict[str, object] = {}
        """By path: class and attributes of an object, the name of code, the bytes of something large, or a path.

        A path is a second reference to the object at that path.
        """
        self._paths = _labels(env)
        for layer in layers(env):
            self._survey(layer, self._paths[id(layer)])
        self._paths = {}

    def holds(self, path: str, value: object) -> bool:
        """Whether something large or a model is unchanged."""
        made = self.facts.get(path)
        return isinstance(made, bytes) and _image(value) == made

    def _survey(self, holder: object, path: str) -> None:
        self._paths[id(holder)], self.facts[path] = path, (type(holder), set(vars(holder)))
        for name, value in vars(holder).items():
            at = f"{path}.{name}"
            if id(value) in self._paths:
                self.facts[at] = self._paths[id(value)]
            elif isinstance(value, CODE):
                self.facts[at] = _which(value)
            elif isinstance(value, gym.Space | EnvSpec):
                continue
            elif not is_kind(value, "mujoco", "MjModel") and is_record(value):
                self._survey(value, at)
            elif (image := _image(value)) is not None:
                self._paths[id(value)], self.facts[at] = at, image
            elif is_kind(value, "mujoco", "MjData") or is_kind(value, "ale_py", "ALEInterface"):
                self._paths[id(value)] = at


class SnapshotWriter:
    """One snapshot of one environment."""

    def __init__(self, env: gym.Env, reference: Reference) -> None:
        self._env, self._reference, self._encoder = env, reference, ValueEncoder()
        self._paths = _labels(env)

    def write(self, own: State | None = None) -> list[Node]:
        """The nodes of every layer; `own`: the state from `snapshot_state` instead of the environment's attributes."""
        *wrappers, env = layers(self._env)
        nodes: list[Any] = [self._attributes(layer, self._paths[id(layer)]) for layer in wrappers]
        path = self._paths[id(env)]
        if own is None:
            nodes.append(self._attributes(env, path))
        else:
            nodes += [_randomness(env, path, self._encoder), self._encoder.encode(own, path)]
        self._encoder.finish()
        return nodes

    def _attributes(self, holder: object, path: str) -> State:
        made: Any = self._reference.facts.get(path, (None, set()))
        if made[0] is not type(holder):
            raise Refused(f"{path} is a {type(holder).__qualname__} that a new environment has not")
        if lost := made[1] - vars(holder).keys():
            raise Refused(f"{path} has lost its attribute {min(lost)}")
        self._paths[id(holder)] = path
        nodes = {name: self._attribute(value, f"{path}.{name}") for name, value in vars(holder).items()}
        return {name: node for name, node in nodes.items() if node is not _AS_MADE}

    def _attribute(self, value: object, path: str) -> Node:
        if type(value) in LEAVES:
            return value
        if id(value) in self._paths:
            if self._reference.facts.get(path) != self._paths[id(value)]:
                raise Refused(f"{path} and {self._paths[id(value)]} are one object, not so in a new environment")
            return _AS_MADE
        drawing = self._env.render_mode is not None and any(is_kind(value, "pygame", name) for name in SCREEN)
        if isinstance(value, EnvSpec) or drawing:  # drawings follow from the state
            return _AS_MADE
        if isinstance(value, gym.Space):
            return _space(value, path, self._encoder)
        if isinstance(value, CODE):
            if self._reference.facts.get(path) != _which(value):
                raise Refused(f"{path} is code that a new environment has not")
            return _AS_MADE
        return self._data(value, path)

    def _data(self, value: object, path: str) -> Node:
        node = _AS_MADE
        if is_kind(value, "mujoco", "MjModel"):
            if not self._reference.holds(path, value):
                raise Refused(f"{path} is a model that was changed")
        elif is_kind(value, "mujoco", "MjData"):
            node = {"is": "mujoco", "state": mujoco.take(value, lambda array: self._encoder.claim(array, path))}
        elif is_kind(value, "ale_py", "ALEInterface"):
            node = {"is": "ale", "state": ale.take(value)}
        elif is_record(value) and not is_minigrid(value):
            return {"is": "record", "attributes": self._attributes(value, path)}
        elif not self._reference.holds(path, value):
            return self._encoder.encode(value, path)
        self._paths[id(value)] = path
        return node


def read(env: gym.Env, nodes: list[Node]) -> Node:
    """Set the attributes of a new environment; returns its state for `restore_state`, if there is one."""
    stack = layers(env)
    own = nodes[len(stack) :]
    if len(nodes) < len(stack) or len(own) > 1:
        raise ValueError(f"{len(nodes)} layers for an environment of {len(stack)}")
    decoder = ValueDecoder(nodes)
    for layer, attributes in zip(stack, nodes, strict=False):
        _assign(layer, attributes, decoder)
    return decoder.decode(own[0]) if own else None


def randomness(env: gym.Env) -> list[Node]:
    """The random generators among the attributes of every layer."""
    encoder = ValueEncoder()
    return [_randomness(layer, "", encoder) for layer in layers(env)]


def _randomness(holder: object, path: str, encoder: ValueEncoder) -> State:
    nodes: State = {}
    for name, value in vars(holder).items():
        if type(value) in GENERATORS:
            nodes[name] = encoder.encode(value, f"{path}.{name}")
        elif isinstance(value, gym.Space):
            nodes[name] = _space(value, f"{path}.{name}", encoder)
    return {name: node for name, node in nodes.items() if node is not _AS_MADE}


def _space(space: gym.Space, path: str, encoder: ValueEncoder) -> Node:
    """The generators of a space and of the ones inside it."""
    states = [encoder.encode(part._np_random, path) for part in _spaces(space)]
    return _AS_MADE if all(state is None for state in states) else {"is": "space", "random": states}


def _assign(holder: object, nodes: State, decoder: ValueDecoder) -> None:
    own = vars(holder)
    for name, node in nodes.items():
        kind = node.get("is") if isinstance(node, dict) else None
        if kind == "record":
            _assign(own[name], node["attributes"], decoder)
        elif kind == "space":
            for space, state in zip(_spaces(own[name]), node["random"], strict=True):
                space._np_random = decoder.decode(state)
        elif kind == "mujoco":
            mujoco.give(own[name], node["state"])
        elif kind == "ale":
            ale.give(own[name], node["state"])
        else:
            own[name] = decoder.decode(node)


def _spaces(space: gym.Space) -> Iterator[gym.Space]:
    """A space and the ones inside it: each may have a generator."""
    yield space
    parts = getattr(space, "spaces", ())
    for part in parts.values() if isinstance(parts, dict) else parts:
        yield from _spaces(part)


def _labels(env: gym.Env) -> dict[int, str]:
    """Names of the layers in paths and messages, by their identity."""
    return {id(layer): f"{i}:{type(layer).__name__}" for i, layer in enumerate(layers(env))}


def _which(code: object) -> object:
    """A name of the code that is equal in two environments."""
    if isinstance(code, functools.partial):
        return (functools.partial, _which(code.func))
    return (type(code), getattr(code, "__module__", None), getattr(code, "__qualname__", None) or str(code))


def _image(value: object) -> bytes | None:
    """The bytes of a MuJoCo model or of something large, for comparison only: they are never loaded."""
    if is_kind(value, "mujoco", "MjModel"):
        return mujoco.model_bytes(value)
    try:
        return pickle.dumps(value, 5) if next(itertools.islice(_leaves(value), LARGE, None), False) is None else None
    except (pickle.PicklingError, TypeError, AttributeError):
        return None


def _leaves(value: object) -> Iterator[None]:
    if isinstance(value, np.ndarray):
        yield from (None for _ in range(min(value.size, LARGE + 1)))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from itertools.chain.from_iterable(map(_leaves, value))
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    else:
        yield None
