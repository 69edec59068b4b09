"""A config under construction: layers of canonical data, each value with the place it was written at.

Later layers win, key by key. Another `type:` or `name:` of a choice drops the old choice's other keys, a whole schedule
replaces the old one, and part of a schedule changes that part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ludus.config.aliases import SHORT, canonical, flat_schedule
from ludus.config.files import Block, plain
from ludus.config.guard import refuse
from ludus.config.schedule import expand
from ludus.config.tree import Many, chooser, section
from ludus.errors import ConfigError

Path = tuple[str, ...]
MISSING: Any = object()
_SCHEDULE = {"start", "end", "from", "to", "schedule"}


@dataclass(frozen=True)
class Layer:
    """Canonical data and where each of its values comes from."""

    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path, str] = field(default_factory=dict)

    def origin(self, path: Path) -> str | None:
        """The place of the nearest value at, above or below a path."""
        for length in range(len(path), 0, -1):
            near = [where for known, where in self.origins.items() if known[:length] == path[:length]]
            if near:
                return self.origins.get(path[:length], near[0])
        return None


def select(data: Any, path: Path) -> Any:
    """The value at a path, or MISSING."""
    for key in path:
        if isinstance(data, Mapping) and key in data:
            data = data[key]
        elif isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        else:
            return MISSING
    return data


def without(layer: Layer, path: Path) -> Layer:
    """The layer less one value."""
    data = plain(layer.data)
    del select(data, path[:-1])[path[-1]]
    return Layer(data, {known: where for known, where in layer.origins.items() if known[: len(path)] != path})


def layers_of(block: Mapping[str, Any], file: str, at: Path = ()) -> list[Layer]:
    """The layers of one mapping in a file: what a `<<` brought in, then its own keys."""
    inherited = block.inherited if isinstance(block, Block) else set()
    layers = []
    for keys in (inherited, block.keys() - inherited):
        writer = Writer()
        for key, value in block.items():
            if key in keys:
                writer.feed((*at, key), value, _place(block, key, file), file)
        layers.append(writer.layer())
    return layers


class Writer:
    """Takes values under any of their names and writes them under the canonical one."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.origins: dict[Path, str] = {}
        self._written: dict[Path, tuple[str, Any]] = {}
        self._flat: dict[Path, dict[str, tuple[Any, str, str]]] = {}

    def feed(self, written: Path, value: Any, origin: str, file: str | None = None, at: Path | None = None) -> None:
        """Write `value`, recursing into sections; `at` is the canonical form of `written` so far."""
        if at is None:
            refuse(written, value, origin)
        path = at or written
        flat = flat_schedule(path)
        if flat is not None:
            self._flat.setdefault(flat[0], {})[flat[1]] = (value, ".".join(written), origin)
            return
        path, meaning = canonical(path)
        if meaning is not None:
            value = meaning(value)
        node, short = section(path), chooser(path) or SHORT.get(path)
        if short and isinstance(value, str):
            value = {short: value}
        if isinstance(value, Mapping) and (node is not None or short):
            for key, item in value.items():
                place = _place(value, key, file) if file else origin
                self.feed((*written, key), item, place, file, (*path, key))
        elif value is not None or file is None or not isinstance(node, (type, Many)):
            self.put(path, plain(value), ".".join(written), origin)

    def put(self, path: Path, value: Any, spelling: str, origin: str) -> None:
        """Write at a canonical path; another spelling of it must not disagree."""
        known, old = self._written.setdefault(path, (spelling, value))
        if known != spelling and old != value:
            problem = f"'{spelling}' ({_brief(value)}) and '{known}' ({_brief(old)}) both set {'.'.join(path)}"
            raise ConfigError(origin, problem, "keep one of them")
        self._written[path] = (spelling, value)
        inside = self.data
        for key in path[:-1]:
            if not isinstance(inside.get(key), dict):
                inside[key] = {"start": inside[key]} if inside.get(key) is not None else {}
            inside = inside[key]
        inside[path[-1]] = value
        self.origins = {k: v for k, v in self.origins.items() if k[: len(path)] != path}
        self._mark(path, value, origin)

    def layer(self) -> Layer:
        """Everything written, flat schedule keys put together."""
        for path, parts in self._flat.items():
            _, spelling, origin = next(iter(parts.values()))
            schedule = {part: value for part, (value, _, _) in parts.items()}
            number = select(self.data, path)
            if number is not MISSING and (isinstance(number, dict) or schedule.setdefault("start", number) != number):
                problem = f"'{self._written[path][0]}' ({_brief(number)}) and '{spelling}' disagree about the schedule"
                raise ConfigError(origin, problem, "keep one of them")
            if "schedule" in schedule:
                schedule.setdefault("end", 0.0)
            self._written.pop(path, None)
            self.put(path, schedule, spelling, origin)
        return Layer(self.data, self.origins)

    def _mark(self, path: Path, value: Any, origin: str) -> None:
        if isinstance(value, dict) and value:
            for key, item in value.items():
                self._mark((*path, key), item, origin)
        else:
            self.origins[path] = origin


def merge(base: Layer, top: Layer) -> Layer:
    """`top` over `base`."""
    origins = dict(base.origins)
    data = _merge(base.data, top.data, (), origins)
    return Layer(data, {**origins, **top.origins})


def _merge(old: Any, new: Any, path: Path, origins: dict[Path, str]) -> Any:
    if isinstance(new, dict) and isinstance(old, list) and _indices(new, old):
        indexed = {str(i): item for i, item in enumerate(old)}
        return list(_joined(indexed, new, path, origins).values())
    if isinstance(new, dict) and new.keys() <= _SCHEDULE and path[:1] == ("algorithm",):
        old = expand(old) or old
    if isinstance(new, dict) and isinstance(old, dict) and not _replaces(old, new, path):
        return _joined(old, new, path, origins)
    for known in [known for known in origins if known[: len(path)] == path]:
        del origins[known]
    return new


def _joined(old: dict[str, Any], new: dict[str, Any], path: Path, origins: dict[Path, str]) -> dict[str, Any]:
    both = {key: _merge(old[key], value, (*path, key), origins) for key, value in new.items() if key in old}
    return {**old, **new, **both}


def _indices(new: dict[str, Any], old: list[Any]) -> bool:
    return bool(new) and all(select(old, (key,)) is not MISSING for key in new)


def _replaces(old: dict[str, Any], new: dict[str, Any], path: Path) -> bool:
    key = chooser(path) or SHORT.get(path)
    if key in new and key in old:
        return bool(new[key] != old[key])
    return path[:1] == ("algorithm",) and {"start", "end"} <= new.keys()


def _place(block: Mapping[str, Any], key: str, file: str) -> str:
    line = block.lines.get(key) if isinstance(block, Block) else None
    return f"{file}:{line}" if line else file


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
