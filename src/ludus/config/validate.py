"""From merged data to a frozen `ExperimentConfig`; every fault becomes one line with its place and the nearest key.

The first half looks up what the schema expects at a path, the second half words pydantic's errors.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from ludus.config.aliases import ABSENT, ALIASES, Path, spellings
from ludus.config.model import Model, Registered
from ludus.config.schema import SCHEMA_VERSION, ExperimentConfig
from ludus.errors import ConfigError
from ludus.text import clean, did_you_mean

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from ludus.config.merge import Draft

MISSING: Any = object()
_PARTS = ("optimizer", "representation", "decoder", "reward", "continues", "critic")
_CHOOSERS: dict[Path, str] = {("algorithm", part): "type" for part in _PARTS}
"""Mappings that a key chooses the shape of, besides those of registered classes."""


@dataclass(frozen=True)
class Many:
    """A list or a mapping of `item`."""

    item: Node
    keyed: bool


Node = type[Model] | Registered | Many | None


def node_of(annotation: object, metadata: Iterable[object] = ()) -> Node:
    """The section, choice or collection behind a field's annotation; None is a plain value."""
    registered = next((item for item in metadata if isinstance(item, Registered)), None)
    if registered is not None:
        return registered
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return node_of(args[0], args[1:])
    if origin in (Union, types.UnionType):
        return next((node for arg in args if (node := node_of(arg)) is not None), None)
    if origin in (tuple, list, dict):
        inner = node_of(args[1] if origin is dict else args[0])
        return Many(inner, origin is dict) if inner is not None else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, Model) else None


def fields(model: type[Model]) -> dict[str, FieldInfo]:
    """Fields under the names that files use."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


@cache
def section(path: Path) -> Node:
    """The section or choice at a path; None where values are plain, or lists."""
    node = _walk(path)
    return None if isinstance(node, Many) and not node.keyed else node


def chooser(path: Path) -> str | None:
    """The key (`type` or `name`) that chooses what the mapping at a path may hold."""
    node = section(path)
    return node.key if isinstance(node, Registered) else _CHOOSERS.get(path)


def field_at(path: Path, data: object) -> FieldInfo | None:
    """The field a path ends in, given the whole data."""
    return _own_fields(_walk(path[:-1], data), select(data, path[:-1])).get(path[-1]) if path else None


def select(data: object, path: Path) -> Any:
    """The value at a path, or MISSING."""
    for key in path:
        if isinstance(data, Mapping) and key in data:
            data = data[key]
        elif isinstance(data, (list, tuple)) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        else:
            return MISSING
    return data


def _walk(path: Path, data: object = None) -> Node:
    """The schema's node at a path; inside a choice, the data decides which class it is."""
    node: Node = ExperimentConfig
    for depth, key in enumerate(path):
        if isinstance(node, Many):
            node = node.item
            continue
        if isinstance(node, Registered) and node.parts and isinstance(select(data, path[: depth + 1]), Mapping):
            continue  # a choice for a part, made like the choice for all
        info = _own_fields(node, select(data, path[:depth])).get(key)
        node = node_of(info.annotation, info.metadata) if info else None
    return node


def _own_fields(node: Node, data: object) -> dict[str, FieldInfo]:
    if isinstance(node, Registered):
        name = data.get(node.key, node.default) if isinstance(data, Mapping) else data
        return fields(node.registry[name].Config) if isinstance(name, str) and name in node.registry else {}
    return fields(node) if isinstance(node, type) else {}


# ---- errors --------------------------------------------------------------------------------------------------------

_WORDS = {
    "an integer": "int_type int_parsing int_from_float",
    "a number": "float_type float_parsing",
    "finite": "finite_number",
    "true or false": "bool_type bool_parsing",
    "a string": "string_type",
    "null": "none_required",
    "a list": "tuple_type list_type",
    "a mapping": "dict_type model_type",
    "above {gt}": "greater_than",
    "at least {ge}": "greater_than_equal",
    "below {lt}": "less_than",
    "at most {le}": "less_than_equal",
    "{expected}": "literal_error",
    "at least {min_length} characters": "string_too_short",
    "at most {max_length} characters": "string_too_long",
}
_WANTED = {kind: words for words, kinds in _WORDS.items() for kind in kinds.split()}
"""Kind of pydantic's error -> what a value must be."""


def validate(draft: Draft, source: str) -> ExperimentConfig:
    """The frozen config; `source` names the origin of values that have none."""
    try:
        return ExperimentConfig.model_validate(draft.data)
    except ValidationError as error:
        raise _config_error(error.errors(include_url=False), draft, source) from None


def _config_error(details: list[ErrorDetails], draft: Draft, source: str) -> ConfigError:
    """The most telling of the errors, with the place its value was written at."""
    # a misspelt key is the cause of what is missing elsewhere
    first = min(details, key=lambda detail: (detail["type"] != "extra_forbidden", detail["type"] == "missing"))
    path = _real(first["loc"], draft.data)
    where, dotted, kind = draft.origin(path) or source, ".".join(path), first["type"]
    info = field_at(path, draft.data)
    remedy = " ".join((info.description or "").split()).removesuffix(".") if info else ""
    if path == ("schema_version",):
        problem, remedy = f"this Ludus reads version {SCHEMA_VERSION}", _migrate(where)
    elif kind == "extra_forbidden":
        problem, remedy = "unknown key", _nearest_key(path, draft.data)
    elif kind == "choice_missing" and path == ("algorithm",) and "type" in draft.data["algorithm"]:
        problem, remedy = "unknown key 'type'", "did you mean 'name'?"
    elif kind == "missing":
        problem = "is missing"
    elif kind == "choice_unknown":
        problem, _, remedy = first["msg"].partition("; ")
    else:
        problem = _problem([detail for detail in details if _real(detail["loc"], draft.data) == path])
        remedy = _example(dotted, info) if info else remedy
    return ConfigError(where, f"{dotted}: {problem}", remedy)


def _example(path: str, info: FieldInfo) -> str:
    """A value that a field takes: its default; where that is none, what the field is."""
    default = None if info.is_required() else info.get_default(call_default_factory=False)
    value = default.model_dump() if isinstance(default, Model) else default
    if isinstance(value, int | float | str) and value != "":
        return f"for example {path}={value if isinstance(value, str) else json.dumps(value)}"
    return " ".join((info.description or "").split()).partition(";")[0].removesuffix(".")


def _nearest_key(path: Path, data: object) -> str:
    """What to write instead of an unknown key."""
    if path[-1] in ABSENT:
        return ABSENT[path[-1]]
    if path[:2] == ("network", "memory") and select(data, (*path[:2], "type")) in (MISSING, "none"):
        return "choose a memory core too: core=lstm, gru, trxl or mamba"
    node = _walk(path[:-1], data)
    known = [*([node.key] if isinstance(node, Registered) else ()), *_own_fields(node, select(data, path[:-1]))]
    close = did_you_mean(path[-1], [*known, *spellings(path[:-1])])
    elsewhere = ALIASES.get(path[-1])
    if elsewhere and path[-1] not in known:
        return f"did you mean '{elsewhere}'?"
    return close if close.startswith("did you mean") else did_you_mean(path[-1], known)


def _migrate(where: str) -> str:
    """The command that helps, with the file if an error came from one."""
    file, _, line = where.rpartition(":")
    file = file if line.isdecimal() else where
    return f"run ludus migrate {file}" if file.endswith((".yaml", ".yml", ".json")) else "run ludus migrate on the file"


def _real(loc: tuple[int | str, ...], data: object) -> Path:
    """The part of pydantic's location that is a path in the data; the rest names branches of a union."""
    path: Path = ()
    for part in map(str, loc):
        deeper = (*path, part)
        missing = select(data, deeper) is MISSING
        if not isinstance(select(data, path), (dict, list)) or (missing and field_at(deeper, data) is None):
            break
        path = deeper
    return path or tuple(map(str, loc))


def _problem(details: list[ErrorDetails]) -> str:
    wanted: list[str] = []
    given = details[0]["input"]
    shown = json.dumps(given) if given is None or isinstance(given, bool) else clean(repr(given), 60)
    for detail in details:
        if detail["type"] == "value_error":
            return str(detail["ctx"]["error"])
        if detail["type"] == "string_pattern_mismatch":
            return f"{shown} is not allowed"
        if detail["type"] not in _WANTED:
            return str(detail["msg"])
        limits = {name: x if isinstance(x, str) else f"{x:g}" for name, x in detail.get("ctx", {}).items()}
        wanted.append(_WANTED[detail["type"]].format(**limits).replace("False", "false"))
    return f"must be {' or '.join(dict.fromkeys(wanted))}, not {shown}"
