"""The reference of all settings, generated from the models: a JSON schema for editors, a markdown page for people."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from ludus.config.aliases import ALIASES
from ludus.config.model import Choice, Model, Registered
from ludus.config.schedule import Schedule
from ludus.config.schema import ExperimentConfig
from ludus.config.validate import Many, Node, fields, node_of

PAGE = Path("docs/reference/config.md")

_HEAD = """# Configuration reference

Generated from the models by `ludus config reference --write`; do not edit. A config file has these sections at its top
level. A *schedule* is a number, `lin_0.001` (linear to 0), `cos_0.001`, or `{start, end, from, to, schedule}`, where
`schedule` is `linear`, `cosine` or `exponential`. Positions up to 1 are fractions of the budget, larger ones are
environment steps.
"""


class FieldRow(NamedTuple):
    """One field of the reference page."""

    path: str
    type: str
    default: str
    doc: str


def json_schema() -> dict[str, Any]:
    """The JSON schema of a whole config, every registered part included."""
    schema = ExperimentConfig.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Ludus experiment", **schema}


def markdown() -> str:
    """The reference page."""
    parts = [_HEAD]
    for title, doc, entries in tables():
        rows = [f"| `{e.path}` | {_cell(e.type)} | {_cell(e.default)} | {_cell(e.doc)} |" for e in entries]
        table = ["| field | type | default | meaning |", "|---|---|---|---|", *rows] if rows else []
        parts.append("\n".join([f"## {title}\n", doc, *([""] if rows else []), *table]) + "\n")
    rows = [f"| `{alias}` | `{target}` |" for alias, target in sorted(ALIASES.items())]
    parts.append("\n".join(["## Other names\n", "| written | means |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def tables() -> Iterator[tuple[str, str, list[FieldRow]]]:
    """Title, description and fields of every section and every registered part."""
    top = [_row(name, info) for name, info in fields(ExperimentConfig).items() if _node(info) is None]
    yield "Top level", ExperimentConfig.__doc__ or "", top
    for name, info in fields(ExperimentConfig).items():
        yield from _section(name, _node(info))


def _section(path: str, node: Node) -> Iterator[tuple[str, str, list[FieldRow]]]:
    if isinstance(node, Many):
        yield from _section(f"{path}.<name>" if node.keyed else f"{path}[]", node.item)
    elif isinstance(node, Registered):
        for name in node.registry.names():
            model = node.registry[name].Config
            yield f"`{path}`: `{node.key}: {name}`", _line(model.__doc__), list(_rows(path, model, inner=True))
        models = [node.registry[name].Config for name in node.registry.names()]
        inner = {f"{path}.{name}": _node(info) for model in models for name, info in fields(model).items()}
        for place, part in inner.items():  # parts that several of them have come once
            if isinstance(part, Registered):
                yield from _section(place, part)
    elif node is not None and not issubclass(node, Schedule):
        yield f"`{path}`", _line(node.__doc__), list(_rows(path, node))
        for name, info in fields(node).items():
            yield from _section(f"{path}.{name}", _node(info))


def _rows(path: str, model: type[Model], *, inner: bool = False) -> Iterator[FieldRow]:
    """The fields of a model; `inner` also lists those of the models in it."""
    for name, info in fields(model).items():
        node = _node(info)
        if inner and isinstance(node, type) and not issubclass(node, Schedule):
            yield from _rows(f"{path}.{name}", node, inner=True)
        else:
            yield _row(f"{path}.{name}", info)


def _node(info: FieldInfo) -> Node:
    return node_of(info.annotation, info.metadata)


def _row(path: str, info: FieldInfo) -> FieldRow:
    value = None if info.is_required() else info.get_default(call_default_factory=False)
    value = value.model_dump() if isinstance(value, Schedule) else value.name if isinstance(value, Choice) else value
    default = "required" if info.is_required() else "" if isinstance(value, Model) else f"`{json.dumps(value)}`"
    return FieldRow(path, _type(info.annotation, info.metadata), default, _line(info.description))


def _type(annotation: object, metadata: Iterable[object] = ()) -> str:
    registered = next((item for item in metadata if isinstance(item, Registered)), None)
    if registered is not None:
        return f"{registered.registry.kind}: {', '.join(registered.registry.names())}"
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(args[0], args[1:])
    if origin is Literal:
        return ", ".join(f"`{json.dumps(arg)}`" if not isinstance(arg, str) else f"`{arg}`" for arg in args)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(arg) for arg in args))
    if origin in (tuple, list):
        return "list of " + " and ".join(dict.fromkeys(_type(arg) for arg in args if arg is not ...))
    if origin is dict or annotation is dict:
        return "mapping"
    if not isinstance(annotation, type):
        return "any"
    names = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null", Schedule: "schedule"}
    return names.get(annotation, "mapping" if issubclass(annotation, (Model, Choice)) else "any")


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
