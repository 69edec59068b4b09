"""MiniGrid's grid and the objects on it: plain attributes of classes that are loaded already."""

from __future__ import annotations

import sys
from typing import Any

PARTS = {"Grid": "minigrid.core.grid", "WorldObj": "minigrid.core.world_object"}
"""The two kinds of things, and where their classes are."""
OWN = frozenset(PARTS.values())


def knows(value: object) -> bool:
    """Whether a value is a grid or an object of MiniGrid's own classes, which have only attributes."""
    cls = type(value)
    return cls.__module__ in OWN and _found(cls.__module__, cls.__qualname__) is cls


def blank(module: str, name: str) -> object:
    """A new object without attributes; ValueError if there is no such class."""
    cls: Any = _found(module, name) if module in OWN else None
    if cls is None:
        raise ValueError(f"{module}.{name} is no part of MiniGrid")
    return cls.__new__(cls)


def _found(module: str, name: str) -> type | None:
    cls = getattr(sys.modules.get(module), name, None)
    bases = tuple(base for kind, home in PARTS.items() if (base := getattr(sys.modules.get(home), kind, None)))
    return cls if isinstance(cls, type) and issubclass(cls, bases) else None
