"""Spaces as plain data, written beside stored steps: learning from them needs no environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from ludus.types import Array


def describe_space(space: gym.Space) -> dict[str, Any]:
    """A space as JSON data."""
    if isinstance(space, gym.spaces.Box):
        bounds = {"low": _bounds(space.low), "high": _bounds(space.high)}
        return {"type": "box", "shape": list(space.shape), "dtype": space.dtype.name, **bounds}
    if isinstance(space, gym.spaces.Discrete):
        return {"type": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"type": "multi_discrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, gym.spaces.MultiBinary):
        return {"type": "multi_binary", "n": np.array(space.n).tolist()}
    if isinstance(space, gym.spaces.Dict):
        return {"type": "dict", "parts": {key: describe_space(part) for key, part in space.spaces.items()}}
    if isinstance(space, gym.spaces.Tuple):
        return {"type": "tuple", "parts": [describe_space(part) for part in space.spaces]}
    raise TypeError(f"steps in a space such as {space} are never stored")


def read_space(data: Mapping[str, Any]) -> gym.Space:
    """The inverse of `describe_space`; ValueError, KeyError or TypeError for anything else."""
    kind = data["type"]
    if kind == "box":
        shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
        low, high = (_array(data[end], shape, dtype) for end in ("low", "high"))
        return gym.spaces.Box(low, high, shape, dtype.type)
    if kind == "discrete":
        return gym.spaces.Discrete(data["n"], start=data["start"])
    if kind == "multi_discrete":
        return gym.spaces.MultiDiscrete(np.array(data["nvec"]), start=np.array(data["start"]))
    if kind == "multi_binary":
        return gym.spaces.MultiBinary(data["n"])
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
    if isinstance(texts, str):
        return np.full(shape, _number(texts, dtype), dtype)
    return np.array([_number(text, dtype) for text in texts], dtype).reshape(shape)


def _number(text: str, dtype: np.dtype[Any]) -> float | int:
    return float(text) if np.issubdtype(dtype, np.floating) else int(text)
