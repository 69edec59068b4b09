"""Config files as plain data: YAML by the 1.2 rules for scalars, or JSON; every way a file can be bad is one line.

The YAML is built from parser events, one pass: depth, size after aliases, duplicate keys and tags are checked before
anything is made of them, and each key remembers its line.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ludus.errors import ConfigError

MAX_BYTES = 2 * 2**20
MAX_DEPTH = 64
MAX_NODES = 100_000

_INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_TAG = "tag:yaml.org,2002:"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Block(dict[str, Any]):
    """A mapping that knows the line of each key and which of them a `<<` brought in."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}
        self.inherited: set[str] = set()

    def only(self, keep: Callable[[str], bool]) -> Block:
        """The same mapping with some of its keys."""
        block = Block()
        block.update({key: value for key, value in self.items() if keep(key)})
        block.lines, block.inherited = self.lines, self.inherited & block.keys()
        return block


def read(path: Path) -> Block:
    """The mapping a file holds."""
    name = shown(path)
    text = _text(path, name)
    data = _json(text, name) if path.suffix == ".json" else _Yaml(text, name).document()
    if data is None:
        raise ConfigError(name, "the file is empty", "write a mapping of sections into it")
    if not isinstance(data, Block):
        raise ConfigError(name, f"holds a {type(data).__name__}, not a mapping", "start with 'key: value' lines")
    return data


def shown(path: Path) -> str:
    """A path as error messages print it: relative where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def scalar(text: str) -> Any:
    """What a plain YAML scalar means: `1e-3` is a float, `010` is ten, `no` and `1:30` are strings."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > 300:  # Python refuses to read very long integers
        return text
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def to_yaml(data: Any) -> str:
    """YAML that `read` and YAML 1.1 readers take for the same data."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _text(path: Path, name: str) -> str:
    try:
        # a FIFO without a writer must not block
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise ConfigError(name, (error.strerror or "cannot be opened").lower(), "check the path") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ConfigError(name, "is not a regular file", "name a .yaml or .json file")
    with os.fdopen(handle, "rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ConfigError(name, f"is larger than {MAX_BYTES >> 20} MB", "a config is a few kB; is this the right file?")
    if b"\0" in raw or raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ConfigError(name, "holds NUL bytes or UTF-16", "save it as UTF-8 text")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(name, f"byte {error.start} is not UTF-8", "save it as UTF-8 text") from None


class _Yaml:
    """Builds one document from parser events."""

    def __init__(self, text: str, name: str) -> None:
        self.name, self.nodes = name, 0
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)

    def document(self) -> Any:
        try:
            self._next()
            if isinstance(self._next(), yaml.StreamEndEvent):
                return None
            data = self._node(self._next(), 0)
            self._next()
            if not isinstance(event := self._next(), yaml.StreamEndEvent):
                raise self._error(event, "a second document starts here", "keep one document per file")
            return data
        except yaml.MarkedYAMLError as error:
            line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
            raise ConfigError(self.name + line, f"not YAML: {error.problem}", "check indentation and quotes") from None
        except yaml.YAMLError as error:
            raise ConfigError(self.name, f"not YAML: {str(error).splitlines()[0]}", "save it as UTF-8 text") from None

    def _next(self) -> Any:
        return next(self.events)

    def _error(self, event: Any, problem: str, remedy: str) -> ConfigError:
        return ConfigError(f"{self.name}:{event.start_mark.line + 1}", problem, remedy)

    def _node(self, event: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._error(event, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
        before = self.nodes
        if isinstance(event, yaml.AliasEvent):
            value, size = self._alias(event)
            self._count(event, size)
            return value
        self._count(event, 1)
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._tagged(event, "seq")
            value = []
            while not isinstance(item := self._next(), yaml.SequenceEndEvent):
                value.append(self._node(item, depth + 1))
        else:
            value = self._mapping(event, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.nodes - before)
        return value

    def _count(self, event: Any, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise self._error(event, f"more than {MAX_NODES} values once aliases are expanded", "use fewer aliases")

    def _alias(self, event: Any) -> tuple[Any, int]:
        if event.anchor not in self.anchors:
            raise self._error(event, f"alias *{event.anchor} has no anchor above it", f"define &{event.anchor} first")
        return self.anchors[event.anchor]

    def _tagged(self, event: Any, kind: str) -> None:
        if event.tag not in (None, "!", _TAG + kind):
            raise self._error(event, f"tag {event.tag!r} is not allowed", "configs hold plain data only")

    def _scalar(self, event: Any) -> Any:
        if event.implicit[0]:
            return scalar(event.value)
        if event.implicit[1] or event.tag in ("!", _TAG + "str"):
            return event.value
        value = scalar(event.value)
        kinds: dict[str, Any] = {
            _TAG + "int": int,
            _TAG + "float": (int, float),
            _TAG + "bool": bool,
            _TAG + "null": type(None),
        }
        if event.tag not in kinds or not isinstance(value, kinds[event.tag]):
            raise self._error(event, f"tag {event.tag!r} is not allowed", "configs hold plain data only")
        return float(value) if event.tag == _TAG + "float" else value

    def _mapping(self, event: Any, depth: int) -> Block:
        self._tagged(event, "map")
        block, own = Block(), Block()
        while not isinstance(key := self._next(), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise self._error(key, "a key must be a plain name", "quote it")
            line = (key.start_mark.line if key.start_mark else 0) + 1
            if key.value in own.lines:
                lines = f"on lines {own.lines[key.value]} and {line}"
                raise self._error(key, f"key '{key.value}' stands twice, {lines}", "remove one of them")
            own.lines[key.value] = line
            value = self._node(self._next(), depth + 1)
            if key.value == "<<" and key.implicit[0]:
                self._merge(key, block, value)
            else:
                own[key.value] = value
        block.inherited = block.keys() - own.keys()
        block.update(own)
        block.lines.update(own.lines)
        return block

    def _merge(self, event: Any, block: Block, value: Any) -> None:
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, Block):
                raise self._error(event, "'<<' needs a mapping or a list of mappings", "write <<: *anchor")
            new = {key: item for key, item in part.items() if key not in block}
            block.update(new)
            block.lines.update({key: part.lines[key] for key in new})


def _json(text: str, name: str) -> Any:
    depth = 0
    for token in re.finditer(r'"(?:\\.|[^"\\])*"|[\[\]{}]', text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if depth > MAX_DEPTH:
            raise ConfigError(name, f"nested deeper than {MAX_DEPTH} levels", "flatten it")

    def pairs(items: list[tuple[str, Any]]) -> Block:
        block = Block()
        for key, value in items:
            if key in block:
                raise ConfigError(name, f"key '{key}' stands twice", "remove one of them")
            block[key] = value
        return block

    def constant(word: str) -> Any:
        raise ConfigError(name, f"{word} is not JSON", "write a number")

    if not text.strip():
        return None
    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name}:{error.lineno}", f"not JSON: {error.msg}", "check commas and quotes") from None
    except ValueError as error:
        raise ConfigError(name, f"not JSON: {error}", "write shorter numbers") from None


def plain(value: Any) -> Any:
    """A deep copy made of dicts and lists only."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def digest(data: Mapping[str, Any]) -> str:
    """Sixteen hex digits that depend on nothing but the values of a resolved config."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Dumper(yaml.SafeDumper):
    """Quotes every string that either generation of YAML would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # PyYAML folds these line breaks unless they are escaped
        style = '"' if re.search("[\x85\u2028\u2029]", data) else None
        return self.represent_scalar(_TAG + "str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)
_Dumper.add_implicit_resolver(_TAG + "float", re.compile(rf"^(?:{_FLOAT.pattern})$"), list("-+.0123456789"))
_Dumper.add_implicit_resolver(_TAG + "int", re.compile(rf"^(?:{_INT.pattern})$"), list("-+0123456789"))
