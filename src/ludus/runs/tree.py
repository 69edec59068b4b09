"""Turns nested state into JSON and a flat table of tensors, and back, without pickle.

A value that JSON lacks becomes an object with one key that begins with `~`:
`~tensor`, `~array`, `~scalar` (name in the table), `~tuple`, `~float` (nan, inf), `~dict` (pairs, for other keys).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

_MARKS = ("~tensor", "~array", "~scalar", "~tuple", "~float", "~dict")


def flatten(state: Mapping[str, object]) -> tuple[object, dict[str, torch.Tensor]]:
    """A tree for JSON, and the tensors that it refers to by their dotted path."""
    tensors: dict[str, torch.Tensor] = {}
    return _encoded(dict(state), (), tensors), tensors


def unflatten(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The inverse of `flatten`; ValueError or KeyError for a tree that `flatten` did not make."""
    if isinstance(tree, list):
        return [unflatten(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) != 1 or next(iter(tree)) not in _MARKS:
        return {key: unflatten(value, tensors) for key, value in tree.items()}
    ((mark, body),) = tree.items()
    if mark == "~tensor":
        return tensors[body]
    if mark in ("~array", "~scalar"):
        array = tensors[body].numpy()
        return array if mark == "~array" else array[()]
    if mark == "~tuple":
        return tuple(unflatten(item, tensors) for item in body)
    if mark == "~float":
        return float(body)
    return {key: unflatten(value, tensors) for key, value in body}


def _encoded(value: object, path: tuple[str, ...], tensors: dict[str, torch.Tensor]) -> object:
    """The JSON form of a value; its tensors go to the table."""
    import torch

    if isinstance(value, torch.Tensor):
        return {"~tensor": _stored(value.detach(), path, tensors)}
    if isinstance(value, np.ndarray | np.generic):
        mark = "~array" if isinstance(value, np.ndarray) else "~scalar"
        return {mark: _stored(_as_tensor(value, path), path, tensors)}
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"~float": str(value)}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        items = [_encoded(item, (*path, str(i)), tensors) for i, item in enumerate(value)]
        return items if type(value) is list else {"~tuple": items}
    if not isinstance(value, dict):
        raise TypeError(f"checkpoint: {'.'.join(path)}: {type(value).__name__} cannot be saved; use tensors, arrays, "
                        "numbers, strings, lists, tuples and dicts")  # fmt: skip
    for key in value:
        if type(key) not in (str, int):
            raise TypeError(f"checkpoint: {'.'.join(path)}: key {key!r} is neither text nor an integer")
    pairs = [[key, _encoded(item, (*path, str(key)), tensors)] for key, item in value.items()]
    plain = all(type(key) is str for key in value) and not (len(value) == 1 and next(iter(value)) in _MARKS)
    return dict(pairs) if plain else {"~dict": pairs}


def _stored(tensor: torch.Tensor, path: tuple[str, ...], tensors: dict[str, torch.Tensor]) -> str:
    """Stores a contiguous copy on the CPU under a unique name, which is returned."""
    import torch

    base = name = ".".join(path).encode("utf-8", "replace").decode() or "value"
    count = 0
    while name in tensors or name == "__metadata__":
        count += 1
        name = f"{base}~{count}"
    tensors[name] = tensor.to("cpu").clone(memory_format=torch.contiguous_format)
    return name


def _as_tensor(value: np.ndarray | np.generic, path: tuple[str, ...]) -> torch.Tensor:
    import torch

    array = np.array(value, order="C", copy=True)
    if array.dtype.kind not in "biufc" or array.dtype == np.complex128 or array.dtype.itemsize > 8:
        raise TypeError(f"checkpoint: {'.'.join(path)}: an array of {array.dtype} cannot be saved")
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
