"""Spaces as plain data, written beside stored steps: learning from them needs no environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from ludus.types import Array

_PLAIN: dict[str, tuple[type[gym.Space], tuple[str, ...]]] = {
    "discrete": (gym.spaces.Discrete, ("n", "start")),
    "multi_discrete": (gym.spaces.MultiDiscrete, ("nvec", "start")),
    "multi_binary": (gym.spaces.MultiBinary, ("n",)),
}
"""Spaces that a few numbers describe: the arguments of their constructors."""


def describe_space(space: gym.Space) -> dict[str, Any]:
    """A space as JSON data."""
    for kind, (cls, names) in _PLAIN.items():
        if isinstance(space, cls):
            return {"type": kind, **{name: np.array(getattr(space, name)).tolist() for name in names}}
    if isinstance(space, gym.spaces.Box):
        bounds = {"low": _bounds(space.low), "high": _bounds(space.high)}
        return {"type": "box", "shape": list(space.shape), "dtype": space.dtype.name, **bounds}
    if isinstance(space, gym.spaces.Dict):
        return {"type": "dict", "parts": {key: describe_space(part) for key, part in space.spaces.items()}}
    if isinstance(space, gym.spaces.Tuple):
        return {"type": "tuple", "parts": [describe_space(part) for part in space.spaces]}
    raise TypeError(f"steps in a space such as {space} are never stored")


def read_space(data: Mapping[str, Any]) -> gym.Space:
    """The inverse of `describe_space`; ValueError, KeyError or TypeError for anything else."""
    kind = data["type"]
    if kind in _PLAIN:
        cls, names = _PLAIN[kind]
        return cls(**{name: data[name] for name in names})
    if kind == "box":
        shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
        low, high = (_array(data[end], shape, dtype) for end in ("low", "high"))
        return gym.spaces.Box(low, high, shape, dtype.type)
    if kind == "dict":
        return gym.spaces.Dict({key: read_space(part) for key, part in data["parts"].items()})
    if kind == "tuple":
        return gym.spaces.Tuple([read_space(part) for part in data["parts"]])
    raise ValueError(f"unknown space '{kind}'")


def _bounds(values: Array) -> Any:
    """One number where all are equal; as text, because JSON has no infinity and a float32 has to come back exactly."""
    texts = [repr(value) for value in values.reshape(-1).tolist()]
    return texts[0] if len(set(texts)) == 1 else texts


def _array(texts: str | list[str], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    number = float if np.issubdtype(dtype, np.floating) else int
    if isinstance(texts, str):
        return np.full(shape, number(texts), dtype)
    return np.array([number(text) for text in texts], dtype).reshape(shape)
