"""The attributes of an environment and of all its wrappers, as nodes and back.

Every attribute is handled: plain data and generators are stored; spaces, specs and code stay those of the new
environment; known parts (MuJoCo, ALE) have their own functions; an object that consists of attributes is stored by
them. Any other attribute raises Refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from ludus.envs.snapshots import Refused, ale, generators, minigrid, mujoco
from ludus.envs.snapshots.reference import CODE, Reference, is_drawing, is_kind, is_record, label, layers, which
from ludus.envs.snapshots.values import LEAVES, Node, ValueDecoder, ValueEncoder
from ludus.types import State

_AS_MADE: Any = object()
"""Marks a value that is not stored, because a new environment has it."""


class SnapshotWriter:
    """One snapshot of one environment."""

    def __init__(self, env: gym.Env, reference: Reference) -> None:
        self._env, self._layers, self._reference, self._encoder = env, layers(env), reference, ValueEncoder()
        self._paths = {id(layer): label(i, layer) for i, layer in enumerate(self._layers)}

    def write(self, own: State | None = None) -> list[Node]:
        """The nodes of every layer; `own`: the state from `snapshot_state` instead of the environment's attributes."""
        wrappers, env = self._layers[:-1], self._layers[-1]
        nodes: list[Any] = [self._attributes(layer, label(i, layer)) for i, layer in enumerate(wrappers)]
        path = label(len(wrappers), env)
        if own is None:
            nodes.append(self._attributes(env, path))
        else:
            random = {name: value for name, value in vars(env).items() if type(value) in generators.KINDS}
            nodes.append({name: self._encoder.encode(value, f"{path}.{name}") for name, value in random.items()})
            nodes.append(self._encoder.encode(own, path))
        self._encoder.finish()
        return nodes

    def _attributes(self, holder: object, path: str) -> State:
        lost = self._reference.names[path] - vars(holder).keys()
        if lost:
            raise Refused(f"{path} has lost its attribute {min(lost)}")
        nodes = {name: self._attribute(value, f"{path}.{name}") for name, value in vars(holder).items()}
        return {name: node for name, node in nodes.items() if node is not _AS_MADE}

    def _attribute(self, value: object, path: str) -> Node:
        if type(value) in LEAVES:
            return value
        if id(value) in self._paths:
            if self._reference.same.get(path) != self._paths[id(value)]:
                raise Refused(f"{path} and {self._paths[id(value)]} are one object, not so in a new environment")
            return _AS_MADE
        if isinstance(value, EnvSpec) or is_drawing(value, self._env):
            return _AS_MADE
        if isinstance(value, gym.Space):
            states = [self._encoder.encode(space._np_random, path) for space in _spaces(value)]
            return _AS_MADE if all(state is None for state in states) else {"is": "space", "random": states}
        if isinstance(value, CODE):
            if self._reference.code.get(path) != which(value):
                raise Refused(f"{path} is code that a new environment has not")
            return _AS_MADE
        return self._data(value, path)

    def _data(self, value: object, path: str) -> Node:
        node = _AS_MADE
        if is_kind(value, "mujoco", "MjModel"):
            if not self._reference.holds_model(path, value):
                raise Refused(f"{path} is a model that was changed")
        elif is_kind(value, "mujoco", "MjData"):
            node = {"is": "mujoco", "state": mujoco.take(value, lambda array: self._encoder.claim(array, path))}
        elif is_kind(value, "ale_py", "ALEInterface"):
            node = {"is": "ale", "state": ale.take(value)}
        elif is_record(value) and not minigrid.knows(value):
            if self._reference.records.get(path) is not type(value):
                raise Refused(f"{path} is a {type(value).__qualname__} that a new environment has not")
            self._paths[id(value)] = path
            return {"is": "record", "attributes": self._attributes(value, path)}
        elif not self._reference.holds_large(path, value):
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
    nodes: list[Any] = []
    for layer in layers(env):
        found: State = {}
        for name, value in vars(layer).items():
            if type(value) in generators.KINDS:
                found[name] = encoder.encode(value, name)
            elif isinstance(value, gym.Space) and any(space._np_random is not None for space in _spaces(value)):
                found[name] = {"is": "space", "random": [encoder.encode(s._np_random, name) for s in _spaces(value)]}
        nodes.append(found)
    return nodes


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
