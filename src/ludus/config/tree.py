"""What stands where in an experiment: the schema seen as a tree of paths."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from ludus.config.model import Model, Registered
from ludus.config.schema import ExperimentConfig
from ludus.registry import UnknownName

Path = tuple[str, ...]


@dataclass(frozen=True)
class Many:
    """A list or a mapping of `item`."""

    item: Node
    keyed: bool


Node = type[Model] | Registered | Many | None


def node_of(annotation: Any, metadata: Any = ()) -> Node:
    """The inner node behind a field's annotation; None is a leaf."""
    for item in metadata:
        if isinstance(item, Registered):
            return item
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return node_of(args[0], args[1:])
    if origin in (Union, types.UnionType):
        return next((node for arg in args if (node := node_of(arg)) is not None), None)
    if origin in (tuple, list, dict):
        item = node_of(args[1] if origin is dict else args[0])
        return Many(item, origin is dict) if item is not None else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, Model) else None


def fields(model: type[Model]) -> dict[str, FieldInfo]:
    """Fields by the name a file uses."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def step(node: Node, key: str, data: Any = None) -> Node:
    """One level down; the body of a registered choice needs the data that chooses."""
    if isinstance(node, Many):
        return node.item
    if isinstance(node, Registered):
        node = body(node, data)
    if node is None or key not in fields(node):
        return None
    return node_of(fields(node)[key].annotation, fields(node)[key].metadata)


def body(node: Registered, data: Any) -> type[Model] | None:
    """The Config the data chooses."""
    name = data.get(node.key, node.default) if isinstance(data, Mapping) else data
    try:
        return node.registry[name].Config if isinstance(name, str) else None
    except UnknownName:
        return None


@cache
def section(path: Path) -> Node:
    """The node at a path when it has keys of the schema's own (a section or a choice), else None."""
    node: Node = ExperimentConfig
    for key in path:
        node = step(node, key) if not isinstance(node, Registered) else None
    return None if isinstance(node, Many) and not node.keyed else node


def chooser(path: Path) -> str | None:
    """`type` or `name` where a path holds a registered choice."""
    node = section(path)
    return node.key if isinstance(node, Registered) else None


def known_keys(path: Path, data: Any) -> list[str]:
    """The keys a mapping at `path` may have, given the whole data."""
    node: Node = ExperimentConfig
    for key in path:
        node = step(node, key, data)
        data = _item(data, key)
    if isinstance(node, Registered):
        model = body(node, data)
        return [node.key, *(fields(model) if model else ())]
    return list(fields(node)) if isinstance(node, type) else []


def field_at(path: Path, data: Any) -> FieldInfo | None:
    """The field a path ends in."""
    node: Node = ExperimentConfig
    for key in path[:-1]:
        node = step(node, key, data)
        data = _item(data, key)
    if isinstance(node, Registered):
        node = body(node, data)
    return fields(node).get(path[-1]) if path and isinstance(node, type) else None


def _item(data: Any, key: str) -> Any:
    if isinstance(data, Mapping):
        return data.get(key)
    if isinstance(data, (list, tuple)) and key.isdigit() and int(key) < len(data):
        return data[int(key)]
    return None
