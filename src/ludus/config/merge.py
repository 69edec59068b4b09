"""Merging: values under canonical paths, one layer over the other, each with the place it was written at.

Later layers win, key by key. Another `type:` or `name:` drops the other keys of the old choice, a whole schedule
replaces the old one, and part of a schedule changes that part. Reading order: Layer -> Draft.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import PydanticUndefined

from ludus.config.aliases import Path, canonical
from ludus.config.read import MAX_NODES, FileMapping, place, plain
from ludus.config.schedule import PARTS, expand
from ludus.config.validate import MISSING, Many, chooser, field_at, section, select
from ludus.errors import ConfigError
from ludus.secrets import masked, refuse
from ludus.text import clean

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

MAX_TEXT = 10_000
_REFERENCE = re.compile(r"\$\{([^${}]*)\}")


class Written(NamedTuple):
    """A value, the name it was written under, and where."""

    value: Any
    spelling: str
    origin: str


class Layer(dict[Path, Written]):
    """Values written side by side, by canonical path; two spellings of one value must agree."""

    def feed(self, written: Path, value: Any, origin: str, file: str | None = None, at: Path | None = None) -> None:
        """Take a value under any of its names, or a section; `at` is the canonical form of `written` so far."""
        if at is None:
            refuse(written, value, origin)
        path, meaning = canonical(at or written)
        if meaning is not None:
            value = meaning(value)
        node, key = section(path), chooser(path)
        if key and isinstance(value, str):
            value = {key: value}
        if isinstance(value, Mapping) and (node is not None or key):
            for name, item in value.items():
                self.feed((*written, name), item, place(value, name, file) if file else origin, file, (*path, name))
        elif value is not None or file is None or not isinstance(node, (type, Many)):
            new = Written(plain(value), ".".join(written), origin)
            _agree(path, self.get(path, new), new)
            self[path] = new

    def ordered(self) -> Iterable[tuple[Path, Written]]:
        """Choices first, then outer values before their parts, so that the order of writing does not matter."""
        for path in sorted(self, key=lambda path: (path[-1] != chooser(path[:-1]), len(path))):
            outer = self.get(path[:-1])
            if outer is not None:
                parts = outer.value if isinstance(outer.value, dict) else expand(outer.value) or {}
                _agree(path, outer._replace(value=parts.get(path[-1], self[path].value)), self[path])
            yield path, self[path]


def layers_of(block: Mapping[str, Any], file: str, at: Path = ()) -> list[Layer]:
    """The layers of one mapping in a file: what came from a `<<`, then its own keys."""
    layers = Layer(), Layer()
    for key, value in block.items():
        own = not isinstance(block, FileMapping) or key not in block.inherited
        layers[own].feed((*at, key), value, place(block, key, file), file)
    return list(layers)


class Draft:
    """A config under construction."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.data: dict[str, Any] = {}
        self.origins: dict[Path, str] = {}
        self._nodes = 0
        for layer in layers:
            self._add(layer)

    def origin(self, path: Path) -> str | None:
        """The place of the nearest value at, above or below a path."""
        for length in range(len(path), 0, -1):
            near = [where for known, where in self.origins.items() if known[:length] == path[:length]]
            if near:
                return self.origins.get(path[:length], near[0])
        return None

    def change(self, overrides: Sequence[Override]) -> None:
        """Make all changes; together they are one layer, so that their order does not matter."""
        layer = Layer()
        for override in overrides:
            where, key = masked(override.input_line or ""), override.key_or_group
            written = tuple(key.split("."))
            path, _ = canonical(written)
            old, outer = select(self.data, path), select(self.data, path[:-1])
            other = override.value_type is not None and override.value() != old
            if override.package is not None or not all(written):
                raise ConfigError(where, f"no config group '{key}'", "write section.field=value")
            if not override.is_delete():
                if override.is_add() and old is not MISSING and not isinstance(old, (dict, list)):
                    raise ConfigError(where, f"{key}: is set already", f"drop the '+' of '{where}', or write '++'")
                layer.feed(written, override.value(), where)
            elif old is MISSING or not isinstance(outer, dict) or other:
                raise ConfigError(where, f"{key}: there is no such value to take away", "leave it out")
            else:
                del outer[path[-1]]
                self._forget(path)
        self._add(layer)

    def _add(self, layer: Layer) -> None:
        for path, new in layer.ordered():
            self._write(path, new.value, new.origin)

    def _write(self, path: Path, value: Any, origin: str) -> None:
        inside = self._inside(path[:-1], path[-1])
        old = select(inside, path[-1:])
        if path[-1] == chooser(path[:-1]) and old not in (MISSING, value):
            inside.clear()
            self._forget(path[:-1])
        key = int(path[-1]) if isinstance(inside, list) else path[-1]
        if isinstance(value, dict) and (value or isinstance(old, (dict, list))):
            if path[0] == "algorithm" and value.keys() >= {"start", "end"}:
                inside[key] = {}
                self._forget(path)
            for name, item in value.items():
                self._write((*path, name), item, origin)
        else:
            inside[key] = value
            self._forget(path)
            self.origins[path] = origin

    def _inside(self, path: Path, key: str) -> Any:
        """The mapping at a path, or the list if `key` is an index of it; anything else gives way to a mapping."""
        if not path:
            return self.data
        outer = self._inside(path[:-1], path[-1])
        found = select(outer, path[-1:])
        if not isinstance(found, dict) and select(found, (key,)) is MISSING:
            found = (expand(found) if key in PARTS and path[0] == "algorithm" else None) or {}
            outer[int(path[-1]) if isinstance(outer, list) else path[-1]] = found
            if not found:
                self._forget(path)
        return found

    def _forget(self, path: Path) -> None:
        self.origins = {known: where for known, where in self.origins.items() if known[: len(path)] != path}

    # ---- references --------------------------------------------------------------------------------------------------

    def resolve(self) -> Draft:
        """Replace every `${section.field}` by the value of that field; nothing else can be interpolated."""
        self.data = self._value((), self.data, ())
        return self

    def _value(self, path: Path, value: Any, following: tuple[Path, ...]) -> Any:
        """`value` at `path` without references; `following` are the references on the way here."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._error(path, f"references expand to more than {MAX_NODES} values", "use fewer of them")
        if isinstance(value, dict):
            return {key: self._value((*path, key), item, following) for key, item in value.items()}
        if isinstance(value, list):
            return [self._value((*path, str(i)), item, following) for i, item in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        whole = _REFERENCE.fullmatch(value)
        if whole is not None:
            return self._follow(path, whole[1], following)
        text = _REFERENCE.sub(lambda match: str(self._follow(path, match[1], following)), value)
        if "${" in text or len(text) > MAX_TEXT:
            raise self._error(path, f"'{value}' is not a plain reference", "write ${section.field}")
        return text

    def _follow(self, path: Path, name: str, following: tuple[Path, ...]) -> Any:
        if ":" in name:
            raise self._error(path, f"'${{{name}}}': resolvers are off", "write the value, or ${section.field}")
        target, _ = canonical(tuple(name.split(".")))
        if target in following:
            circle = " -> ".join(".".join(step) for step in (*following[following.index(target) :], target))
            raise self._error(path, f"references go in a circle: {circle}", "give one of them a value")
        found = select(self.data, target)
        if found is MISSING:
            info = field_at(target, self.data)
            found = info.get_default(call_default_factory=False) if info else PydanticUndefined
        if found is PydanticUndefined:
            raise self._error(path, f"'${{{name}}}' refers to nothing", "write the full path: ${section.field}")
        return self._value(target, plain(found), (*following, target))

    def _error(self, path: Path, problem: str, remedy: str) -> ConfigError:
        dotted = ".".join(path)
        return ConfigError(self.origin(path) or dotted, f"{dotted}: {problem}", remedy)


def _agree(path: Path, old: Written, new: Written) -> None:
    if old.spelling != new.spelling and old.value != new.value:
        written = [f"'{one.spelling}' ({clean(repr(one.value), 60)})" for one in (new, old)]
        raise ConfigError(new.origin, f"{' and '.join(written)} both set {'.'.join(path)}", "keep one of them")
