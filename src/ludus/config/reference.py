"""The config schema for editors (JSON schema) and for people (a markdown page), both generated from the models."""

from __future__ import annotations

import argparse
import json
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from ludus.config.aliases import ALIASES
from ludus.config.model import Choice, Model, Registered
from ludus.config.schedule import Schedule
from ludus.config.schema import ExperimentConfig
from ludus.config.validate import Many, Node, fields, node_of

PAGE = Path("docs/reference/config.md")

_HEAD = """# Configuration reference

Generated from the models by `ludus config reference --write`; do not edit. Sections stand at the top level of a config.
A *schedule* is a number, `lin_0.001` (linear to 0), `cos_0.001`, or `{start, end, from, to, schedule}`; its `schedule`
is `linear`, `cosine` or `exponential`; positions up to 1 are fractions of the budget, larger ones environment steps.
"""


@dataclass(frozen=True)
class Entry:
    """One field: where it stands and what it means."""

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


def tables() -> Iterator[tuple[str, str, list[Entry]]]:
    """Title, description and fields of every section and every registered part."""
    top = [_entry(name, info) for name, info in fields(ExperimentConfig).items() if _node(info) is None]
    yield "Top level", ExperimentConfig.__doc__ or "", top
    for name, info in fields(ExperimentConfig).items():
        yield from _section(name, _node(info), info.description or "")


def _section(path: str, node: Node, doc: str) -> Iterator[tuple[str, str, list[Entry]]]:
    if isinstance(node, Many):
        yield from _section(f"{path}.<name>" if node.keyed else f"{path}[]", node.item, doc)
    elif isinstance(node, Registered):
        for name in node.registry.names():
            model = node.registry[name].Config
            title = f"`{path}`: `{node.key}: {name}`"
            yield title, _line(model.__doc__), list(_entries(path, model))
    elif node is not None and not issubclass(node, Schedule):
        yield f"`{path}`", _line(node.__doc__), list(_entries(path, node))
        for name, info in fields(node).items():
            yield from _section(f"{path}.{name}", _node(info), info.description or "")


def _entries(path: str, model: type[Model]) -> Iterator[Entry]:
    for name, info in fields(model).items():
        inner = _node(info)
        if isinstance(inner, type) and not issubclass(inner, Schedule) and _is_choice_body(path):
            yield from _entries(f"{path}.{name}", inner)
        else:
            yield _entry(f"{path}.{name}", info)


def _is_choice_body(path: str) -> bool:
    return path.split(".")[0] == "algorithm" or path.startswith(("network.encoder", "network.memory", "buffers"))


def _node(info: FieldInfo) -> Node:
    return node_of(info.annotation, info.metadata)


def _entry(path: str, info: FieldInfo) -> Entry:
    default = "required" if info.is_required() else _default(info.get_default(call_default_factory=False))
    return Entry(path, _type(info.annotation, info.metadata), default, _line(info.description))


def _default(value: Any) -> str:
    if isinstance(value, Model) and not isinstance(value, Schedule):
        return ""
    if isinstance(value, Schedule):
        value = value.model_dump()
    return f"`{json.dumps(value)}`"


def _type(annotation: Any, metadata: Any = ()) -> str:
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
    names = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null", Schedule: "schedule"}
    if annotation in names:
        return names[annotation]
    return "mapping" if isinstance(annotation, type) and issubclass(annotation, (Model, Choice)) else "any"


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """`python -m ludus.config.reference [--write]`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    if parser.parse_args().write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(markdown(), encoding="utf-8")
    else:
        print(markdown(), end="")


if __name__ == "__main__":
    main()
