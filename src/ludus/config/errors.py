"""What pydantic found wrong, as one line a user can act on."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from ludus.config.aliases import spellings
from ludus.config.layers import MISSING, Layer, select
from ludus.config.schema import SCHEMA_VERSION
from ludus.config.tree import field_at, known_keys
from ludus.errors import ConfigError
from ludus.text import did_you_mean

Path = tuple[str, ...]

_WORDS = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "finite",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a string",
    "none_required": "null",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
}


def config_error(error: ValidationError, layer: Layer, source: str) -> ConfigError:
    """The most telling of the errors, with the place its value was written at."""
    details = error.errors(include_url=False)
    # a misspelt key is the cause of what is missing elsewhere
    first = min(details, key=lambda detail: (detail["type"] != "extra_forbidden", detail["type"] == "missing"))
    path = _real(first["loc"], layer.data)
    where, dotted = layer.origin(path) or source, ".".join(path)
    if path == ("schema_version",):
        return ConfigError(where, f"{dotted}: this Ludus reads version {SCHEMA_VERSION}", _migrate(where))
    if first["type"] == "extra_forbidden":
        known = known_keys(path[:-1], layer.data)
        close = did_you_mean(path[-1], [*known, *spellings(path[:-1])])
        remedy = close if close.startswith("did you mean") else did_you_mean(path[-1], known)
        return ConfigError(where, f"{dotted}: unknown key", remedy)
    if first["type"] == "choice_missing" and path == ("algorithm",) and "type" in layer.data["algorithm"]:
        return ConfigError(where, f"{dotted}: unknown key 'type'", "did you mean 'name'?")
    info = field_at(path, layer.data)
    remedy = " ".join((info.description or "").split()).removesuffix(".") if info else ""
    if first["type"] == "missing":
        return ConfigError(where, f"{dotted}: is missing", remedy)
    if first["type"] == "choice_unknown":
        problem, _, remedy = first["msg"].partition("; ")
        return ConfigError(where, f"{dotted}: {problem}", remedy)
    same = [detail for detail in details if _real(detail["loc"], layer.data) == path]
    return ConfigError(where, f"{dotted}: {_problem(same)}", remedy)


def _migrate(where: str) -> str:
    """The command that helps, with the file if an error came from one."""
    file, _, line = where.rpartition(":")
    file = file if line.isdecimal() else where
    return f"run ludus migrate {file}" if file.endswith((".yaml", ".yml", ".json")) else "run ludus migrate on the file"


def _real(loc: tuple[int | str, ...], data: Any) -> Path:
    """The part of pydantic's location that is a path in the data; the rest names branches of a union."""
    path: Path = ()
    for part in map(str, loc):
        inner, deeper = select(data, path), (*path, part)
        missing = select(data, deeper) is MISSING
        if not isinstance(inner, (dict, list)) or (missing and field_at(deeper, data) is None):
            break
        path = deeper
    return path or tuple(map(str, loc))


def _problem(details: list[Any]) -> str:
    wanted: list[str] = []
    given = _shown(details[0]["input"])
    for detail in details:
        if detail["type"] == "value_error":
            return str(detail["ctx"]["error"])
        if detail["type"] == "string_pattern_mismatch":
            return f"{given} is not allowed"
        if detail["type"] not in _WORDS:
            return str(detail["msg"])
        limits = {
            key: value if isinstance(value, str) else f"{value:g}" for key, value in detail.get("ctx", {}).items()
        }
        wanted.append(_WORDS[detail["type"]].format(**limits).replace("False", "false"))
    return f"must be {' or '.join(dict.fromkeys(wanted))}, not {given}"


def _shown(value: Any) -> str:
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
