"""Config files as plain data: YAML with the scalars of YAML 1.2, or JSON. Every fault of a file is a one-line error.

YAML is built from parser events in one pass: depth, size after aliases, duplicate keys and tags are checked before a
value is built, and each key remembers its line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ludus import files
from ludus.errors import ConfigError
from ludus.text import near

MAX_BYTES = 2 * 2**20
MAX_DEPTH = 64
MAX_NODES = 100_000

_INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_TAG = "tag:yaml.org,2002:"
_TYPES = {_TAG + "int": (int,), _TAG + "float": (int, float), _TAG + "bool": (bool,), _TAG + "null": (type(None),)}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class FileMapping(dict[str, Any]):
    """A mapping that knows the line of each key and which of its keys came from a `<<`."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}
        self.inherited: set[str] = set()

    def only(self, keep: Callable[[str], bool]) -> FileMapping:
        """The same mapping with the keys for which `keep` is true."""
        block = FileMapping()
        block.update({key: value for key, value in self.items() if keep(key)})
        block.lines, block.inherited = self.lines, self.inherited & block.keys()
        return block


def read_file(path: Path) -> FileMapping:
    """The mapping in a file."""
    name = near(path)
    try:
        text = files.read(path, MAX_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(name, files.reason(error), "name a .yaml or .json file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(name, f"byte {error.start} is not UTF-8 (UTF-16?)", "save it as UTF-8 text") from None
    if "\0" in text:
        raise ConfigError(name, "holds NUL bytes", "save it as UTF-8 text")
    data = _json(text, name) if path.suffix == ".json" else _Yaml(text, name).document()
    if data is None:
        raise ConfigError(name, "the file is empty", "write a mapping of sections into it")
    if not isinstance(data, FileMapping):
        raise ConfigError(name, f"holds a {type(data).__name__}, not a mapping", "start with 'key: value' lines")
    return data


def place(block: Mapping[str, object], key: str, file: str) -> str:
    """`file:line` of a key, as far as it is known."""
    line = block.lines.get(key) if isinstance(block, FileMapping) else None
    return f"{file}:{line}" if line else file


def scalar(text: str) -> object:
    """The value of a plain YAML scalar: `1e-3` is a float, `010` is ten, `no` and `1:30` are strings."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > 300:  # Python refuses to read very long integers
        return text
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def plain(value: Any) -> Any:
    """A deep copy made of dicts and lists only."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def to_yaml(data: object) -> str:
    """YAML that means the same to `read_file` and to readers of YAML 1.1."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def digest(data: Mapping[str, object]) -> str:
    """A hash of sixteen hex digits that depends only on the values of a resolved config, not on their order."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Yaml:
    """Builds one document from parser events."""

    def __init__(self, text: str, name: str) -> None:
        self.name, self.nodes = name, 0
        self.anchors: dict[str, tuple[object, int]] = {}
        self.events: Iterator[yaml.Event] = yaml.parse(text, Loader=_LOADER)

    def document(self) -> object:
        try:
            next(self.events)
            if isinstance(next(self.events), yaml.StreamEndEvent):
                return None
            data = self._node(next(self.events), 0)
            next(self.events)
            if not isinstance(event := next(self.events), yaml.StreamEndEvent):
                self._fail(event, "a second document starts here", "keep one document per file")
            return data
        except yaml.MarkedYAMLError as error:
            line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
            raise ConfigError(self.name + line, f"not YAML: {error.problem}", "check indentation and quotes") from None
        except yaml.YAMLError as error:
            raise ConfigError(self.name, f"not YAML: {str(error).splitlines()[0]}", "save it as UTF-8 text") from None

    def _fail(self, event: yaml.Event, problem: str, remedy: str) -> NoReturn:
        raise ConfigError(f"{self.name}:{_line(event)}", problem, remedy)

    def _node(self, event: yaml.Event, depth: int) -> object:
        if depth > MAX_DEPTH:
            self._fail(event, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                self._fail(event, f"alias *{event.anchor} has no anchor above it", f"define &{event.anchor} first")
            value, size = self.anchors[event.anchor]
            self._count(event, size)
            return value
        assert isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent))
        before = self.nodes
        self._count(event, 1)
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._check_tag(event, "seq")
            items = takewhile(lambda item: not isinstance(item, yaml.SequenceEndEvent), self.events)
            value = [self._node(item, depth + 1) for item in items]
        else:
            value = self._mapping(event, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.nodes - before)
        return value

    def _count(self, event: yaml.Event, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            self._fail(event, f"more than {MAX_NODES} values once aliases are expanded", "use fewer aliases")

    def _check_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, kind: str) -> None:
        if event.tag not in (None, "!", _TAG + kind):
            self._fail(event, f"tag {event.tag!r} is not allowed", "configs hold plain data only")

    def _scalar(self, event: yaml.ScalarEvent) -> object:
        if event.implicit[0]:
            return scalar(event.value)
        if event.implicit[1] or event.tag in ("!", _TAG + "str"):
            return event.value
        value = scalar(event.value)
        if not isinstance(value, _TYPES.get(event.tag or "", ())):
            self._check_tag(event, "str")
        return float(value) if isinstance(value, int) and event.tag == _TAG + "float" else value

    def _mapping(self, event: yaml.CollectionStartEvent, depth: int) -> FileMapping:
        self._check_tag(event, "map")
        block, own = FileMapping(), FileMapping()
        while not isinstance(key := next(self.events), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                self._fail(key, "a key must be a plain name", "quote it")
            if key.value in own.lines:
                lines = f"on lines {own.lines[key.value]} and {_line(key)}"
                self._fail(key, f"duplicate key '{key.value}', {lines}", "remove one of them")
            own.lines[key.value] = _line(key)
            value = self._node(next(self.events), depth + 1)
            if key.value == "<<" and key.implicit[0]:
                self._merge(key, block, value)
            else:
                own[key.value] = value
        block.inherited = block.keys() - own.keys()
        block.update(own)
        block.lines.update(own.lines)
        return block

    def _merge(self, event: yaml.Event, block: FileMapping, value: object) -> None:
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, FileMapping):
                self._fail(event, "'<<' needs a mapping or a list of mappings", "write <<: *anchor")
            new = {key: item for key, item in part.items() if key not in block}
            block.update(new)
            block.lines.update({key: part.lines[key] for key in new})


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _json(text: str, name: str) -> object:
    brackets = re.sub(r'"(?:\\.|[^"\\])*"|[^][{}]', "", text)
    if max(accumulate((1 if bracket in "[{" else -1 for bracket in brackets), initial=0)) > MAX_DEPTH:
        raise ConfigError(name, f"nested deeper than {MAX_DEPTH} levels", "flatten it")

    def block_of(items: list[tuple[str, object]]) -> FileMapping:
        block = FileMapping()
        for key, value in items:
            if key in block:
                raise ConfigError(name, f"duplicate key '{key}'", "remove one of them")
            block[key] = value
        return block

    def refuse(word: str) -> NoReturn:
        raise ConfigError(name, f"{word} is not JSON", "write a number")

    try:
        return json.loads(text, object_pairs_hook=block_of, parse_constant=refuse) if text.strip() else None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name}:{error.lineno}", f"not JSON: {error.msg}", "check commas and quotes") from None
    except ValueError as error:
        raise ConfigError(name, f"not JSON: {error}", "write shorter numbers") from None


class _Dumper(yaml.SafeDumper):
    """Quotes every string that YAML 1.1 or YAML 1.2 would read as another type."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # PyYAML folds these line breaks unless they are escaped
        style = '"' if re.search("[\x85\u2028\u2029]", data) else None
        return self.represent_scalar(_TAG + "str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)
_Dumper.add_implicit_resolver(_TAG + "float", re.compile(rf"^(?:{_FLOAT.pattern})$"), list("-+.0123456789"))
_Dumper.add_implicit_resolver(_TAG + "int", re.compile(rf"^(?:{_INT.pattern})$"), list("-+0123456789"))
