"""`${section.field}` in a value means the value of that field; nothing else can be interpolated."""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import PydanticUndefined

from ludus.config.aliases import canonical
from ludus.config.files import MAX_NODES, plain
from ludus.config.layers import MISSING, Layer, select
from ludus.config.tree import field_at
from ludus.errors import ConfigError

_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
MAX_TEXT = 10_000

Path = tuple[str, ...]


def resolve(layer: Layer) -> Layer:
    """The layer with every reference replaced by what it refers to."""
    return Layer(_Resolver(layer).value((), layer.data, ()), layer.origins)


class _Resolver:
    def __init__(self, layer: Layer) -> None:
        self.layer, self.nodes = layer, 0

    def value(self, path: Path, value: Any, open_: tuple[Path, ...]) -> Any:
        """`value` at `path` resolved; `open_` are the references being followed."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self._error(path, f"references expand to more than {MAX_NODES} values", "use fewer of them")
        if isinstance(value, dict):
            return {key: self.value((*path, key), item, open_) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value((*path, str(i)), item, open_) for i, item in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        whole = _REFERENCE.fullmatch(value)
        if whole is not None:
            return self._follow(path, whole[1], open_)
        text = _REFERENCE.sub(lambda match: str(self._follow(path, match[1], open_)), value)
        if "${" in text or len(text) > MAX_TEXT:
            raise self._error(path, f"'{value}' is not a plain reference", "write ${section.field}")
        return text

    def _follow(self, path: Path, name: str, open_: tuple[Path, ...]) -> Any:
        if ":" in name:
            raise self._error(path, f"'${{{name}}}': resolvers are off", "write the value, or ${section.field}")
        if not re.fullmatch(r"\w+(\.\w+)*", name):
            raise self._error(path, f"'${{{name}}}' is not a field", "write the full path: ${section.field}")
        target, _ = canonical(tuple(name.split(".")))
        if target in open_:
            circle = " -> ".join(".".join(step) for step in (*open_[open_.index(target) :], target))
            raise self._error(path, f"references go in a circle: {circle}", "give one of them a value")
        found = select(self.layer.data, target)
        if found is MISSING:
            info = field_at(target, self.layer.data)
            found = info.get_default(call_default_factory=False) if info else PydanticUndefined
        if found is PydanticUndefined:
            raise self._error(path, f"'${{{name}}}' refers to nothing", "check its spelling")
        return self.value(target, plain(found), (*open_, target))

    def _error(self, path: Path, problem: str, remedy: str) -> ConfigError:
        dotted = ".".join(path)
        return ConfigError(self.layer.origin(path) or dotted, f"{dotted}: {problem}", remedy)
