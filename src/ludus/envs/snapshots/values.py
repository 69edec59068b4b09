"""Plain values and random generators as nodes that can be stored, and back; decoding imports and calls nothing.

Numbers, strings and None stand for themselves; everything else is a dict with the key `is`. Two references to one
object stay two references to one object. Dicts become pairs: a checkpoint sorts keys. MiniGrid's grid and the objects
on it are plain, too: attributes of classes that are loaded already.
"""

from __future__ import annotations

import enum
import random
import sys
from collections import deque
from typing import Any

import numpy as np

from ludus.envs.snapshots import Refused
from ludus.types import Leaf, State

LEAVES = (type(None), bool, int, float, str)
_SEQUENCES: State = {cls.__name__: cls for cls in (tuple, list, set, frozenset, deque)}
GENERATORS: dict[type, str] = {
    np.random.Generator: "generator", np.random.RandomState: "legacy", random.Random: "python"
}  # fmt: skip
"""Exact types: a subclass may have more state."""
_BITS: State = {
    cls.__name__: cls
    for cls in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}
_MINIGRID = {"minigrid.core.grid": "Grid", "minigrid.core.world_object": "WorldObj"}
"""Where MiniGrid's classes are, and the base of each kind."""

Node = Any
"""A value, in the form in which it is stored or as it was."""


class ValueEncoder:
    """Turns values into nodes; use one encoder for all values that may share objects."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, State | None]] = {}
        self._names = 0
        self._spans: list[tuple[int, int, str]] = []

    def encode(self, value: object, path: str) -> Node:
        """The node of a value; raises Refused if it is not plain."""
        if type(value) in LEAVES:
            return value
        if isinstance(value, np.generic):
            return value if _storable(value.dtype) else {"is": "scalar", **_raw(np.asarray(value))}
        if isinstance(value, enum.Enum):
            return _enum(value, path)
        if id(value) in self._seen:
            return self._again(value, path)
        # The value itself is kept, so that no other object gets its id meanwhile. None: it is being looked into.
        self._seen[id(value)] = (value, None)
        node = self._node(value, path)
        self._seen[id(value)] = (value, node)
        return node

    def claim(self, array: np.ndarray, path: str) -> None:
        """Record that this memory is stored under `path`."""
        if array.size:
            low, high = np.lib.array_utils.byte_bounds(array)
            self._spans.append((low, high, path))

    def finish(self) -> None:
        """Raise Refused if two arrays are views of one memory: their copies would differ later."""
        end, owner = 0, ""
        for low, high, path in sorted(self._spans):
            if low < end and path != owner:
                raise Refused(f"{owner} and {path} share memory")
            if high > end:
                end, owner = high, path

    def _again(self, value: object, path: str) -> State:
        node = self._seen[id(value)][1]
        if node is None:
            raise Refused(f"{path} contains itself")
        if "name" not in node:
            node["name"] = self._names
            self._names += 1
        return {"is": "same", "as": node["name"]}

    def _node(self, value: Node, path: str) -> State:
        kind = type(value)
        if _SEQUENCES.get(kind.__name__) is kind:
            items = [self.encode(item, f"{path}[{i}]") for i, item in enumerate(value)]
            node = {"is": kind.__name__, "items": items}
            return {**node, "maxlen": value.maxlen} if kind is deque else node
        if kind is dict:
            pairs = [[self.encode(key, path), self.encode(item, f"{path}[{key!r:.20}]")] for key, item in value.items()]
            return {"is": "dict", "pairs": pairs}
        if kind is np.ndarray:
            return self._array(value, path)
        if kind in (bytes, bytearray):
            return {"is": kind.__name__, "data": np.frombuffer(bytes(value), np.uint8)}
        if kind in GENERATORS:
            return {"is": GENERATORS[kind], **pack_generator(value)}
        if is_minigrid(value):
            parts = {name: self.encode(part, f"{path}.{name}") for name, part in vars(value).items()}
            return {"is": "minigrid", "module": kind.__module__, "type": kind.__qualname__, "attributes": parts}
        raise Refused(f"{path} is a {getattr(kind, '__module__', '?')}.{kind.__qualname__}")  # SWIG's types have none

    def _array(self, value: np.ndarray, path: str) -> State:
        if value.dtype.hasobject or value.dtype.names:
            raise Refused(f"{path} is an array of {value.dtype}")
        self.claim(value, path)
        data = {"data": np.array(value, order="C")} if _storable(value.dtype) else _raw(value)
        # The order of a matrix decides how a library sums over it.
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        return {"is": "array", "order": order, **data}


class ValueDecoder:
    """Turns nodes back into values; KeyError, TypeError or ValueError for invalid nodes."""

    def __init__(self, tree: Node) -> None:
        self._nodes: dict[int, State] = {}
        self._made: dict[int, Any] = {}
        self._collect(tree)

    def decode(self, node: Node) -> Node:
        """The value of a node, in new memory."""
        if not isinstance(node, dict):
            return node
        node = self._nodes[node["as"]] if node["is"] == "same" else node
        name = node.get("name")
        if name in self._made:
            return self._made[name]
        value = self._value(node)
        if name is not None:
            self._made[name] = value
        return value

    def _value(self, node: State) -> Node:
        kind = node["is"]
        if kind == "dict":
            return {self.decode(key): self.decode(item) for key, item in node["pairs"]}
        if kind == "deque":
            return deque(map(self.decode, node["items"]), node["maxlen"])
        if kind in _SEQUENCES:
            return _SEQUENCES[kind](map(self.decode, node["items"]))
        if kind in ("array", "scalar"):
            array = np.array(_cooked(node), order=node.get("order", "C"))
            return array if kind == "array" else array[()]
        if kind in ("bytes", "bytearray"):
            data = node["data"].astype(np.uint8).tobytes()
            return data if kind == "bytes" else bytearray(data)
        if kind == "minigrid":
            cls = _minigrid(node["module"], node["type"])
            part = cls.__new__(cls)
            vars(part).update({name: self.decode(item) for name, item in node["attributes"].items()})
            return part
        if kind == "enum":
            return _member(node["module"], node["type"], node["member"])
        return unpack_generator(kind, node)

    def _collect(self, tree: Node) -> None:
        if isinstance(tree, dict) and "is" in tree and type(tree.get("name")) is int:
            self._nodes[tree["name"]] = tree
        for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
            self._collect(part)


def _storable(dtype: np.dtype) -> bool:
    """Whether `ludus.runs.tree` stores arrays of this dtype as they are."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8 and dtype.isnative


def _raw(array: np.ndarray) -> State:
    data = np.frombuffer(array.tobytes(), np.uint8)
    return {"data": data, "dtype": array.dtype.str, "shape": list(array.shape)}


def _cooked(node: State) -> np.ndarray:
    data: np.ndarray = node["data"]
    if "dtype" not in node:
        return data
    dtype = np.dtype(node["dtype"])
    if dtype.hasobject:
        raise ValueError("objects are no data")
    return np.frombuffer(data.astype(np.uint8).tobytes(), dtype).reshape(node["shape"])


def _enum(value: enum.Enum, path: str) -> State:
    cls = type(value)
    try:
        found = _member(cls.__module__, cls.__qualname__, value.name)
    except (KeyError, ValueError):
        found = None
    if found is not value:
        raise Refused(f"{path} is a {cls.__module__}.{cls.__qualname__} that cannot be found by name")
    return {"is": "enum", "module": cls.__module__, "type": cls.__qualname__, "member": value.name}


def _member(module: str, qualname: str, name: str) -> enum.Enum:
    cls = _loaded(module, qualname)
    if not isinstance(cls, enum.EnumMeta):
        raise ValueError(f"{qualname} is no enumeration")
    member: enum.Enum = cls[name]
    return member


def is_minigrid(value: object) -> bool:
    """Whether a value is a grid or an object of MiniGrid's own classes, which have only attributes."""
    cls = type(value)
    try:
        return getattr(cls, "__module__", "") in _MINIGRID and _minigrid(cls.__module__, cls.__qualname__) is cls
    except ValueError:
        return False


def _minigrid(module: str, name: str) -> Any:
    cls = _loaded(module, name)
    bases = tuple(base for home, kind in _MINIGRID.items() if (base := _loaded(home, kind)))
    if module not in _MINIGRID or not isinstance(cls, type) or not issubclass(cls, bases):
        raise ValueError(f"{module}.{name} is no part of MiniGrid")
    return cls


def _loaded(module: str, qualname: str) -> Any:
    """A class of a module that is loaded already, by the code that made the environment; None if it is not there."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def pack_generator(generator: np.random.Generator | np.random.RandomState | random.Random) -> State:
    """State, and for numpy's generators the seed sequence, from which `spawn` draws."""
    if isinstance(generator, random.Random):
        version, words, gauss = generator.getstate()
        return {"version": version, "words": np.array(words, np.uint64), "gauss": gauss}
    if isinstance(generator, np.random.RandomState):
        return {"state": generator.get_state(legacy=False), "seed": None}
    seed, known = generator.bit_generator.seed_seq, None
    if type(seed) is np.random.SeedSequence:
        known = {**seed.state, "entropy": seed.entropy, "spawn_key": list(seed.spawn_key)}
    return {"state": generator.bit_generator.state, "seed": known}


def unpack_generator(kind: str, packed: State) -> Leaf:
    """A new generator with this state; KeyError, TypeError or ValueError for invalid data."""
    if kind == "python":
        python = random.Random()
        python.setstate((packed["version"], tuple(packed["words"].tolist()), packed["gauss"]))
        return python
    state, seed = packed["state"], packed["seed"]
    if kind == "legacy":
        legacy = np.random.RandomState(_BITS[state["bit_generator"]]())
        legacy.set_state(state)
        return legacy
    bits = _BITS[state["bit_generator"]](None if seed is None else np.random.SeedSequence(**seed))
    bits.state = state
    return np.random.Generator(bits)
