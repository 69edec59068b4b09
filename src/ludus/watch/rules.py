"""metrics.yaml: how each metric is shown and when it is suspicious."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError

from ludus.config.model import Model
from ludus.config.read import plain, read_file, shown
from ludus.errors import ConfigError
from ludus.metrics.names import group
from ludus.text import did_you_mean

SHIPPED = Path(__file__).parents[1] / "configs" / "metrics.yaml"
OVERLAY = Path("configs/metrics.yaml")
Kind = Literal["min", "max", "delta", "collapse", "stall", "fall"]
"""Ways in which a metric can be suspicious."""


class Rule(Model):
    """One metric, or every metric a pattern such as `*/entropy` matches."""

    precision: Annotated[int, Field(ge=0, le=10)] | Literal["score"] = 3
    """Decimals; `score`: one, and three below ten."""
    trim: bool = False
    """Drop trailing zeros."""
    highlight: bool = False
    """A main metric: bright in the table, part of the summary at the end."""
    bold: bool = False
    """Bold value."""
    show_in_table: bool = True
    """Shown in the console; every metric is in the files."""
    description: str = ""
    """What it is, for reports."""
    group: str | None = None
    """Block of the table; the default is made from the name."""
    sparkline: bool = True
    """History beside the value."""
    better: Literal["up", "down"] | None = None
    """Direction that is good news."""
    min: float | None = None
    """Below this it is yellow, and an alert."""
    max: float | None = None
    """Above this it is yellow, and an alert."""
    delta: Literal["non_decreasing", "non_increasing"] | None = None
    """A step the other way is an alert."""
    collapse: float | None = Field(default=None, gt=0, lt=1)
    """Falling below this share of its highest value so far is an alert; for metrics above zero."""
    stall: PositiveInt | None = None
    """So many rows without a new best, and a third of all rows so far, are an alert."""
    fall: float | None = Field(default=None, gt=0)
    """Losing this share of the way from its first value to its best is an alert."""
    patience: PositiveInt | dict[Kind, PositiveInt] = 1
    """Rows in a row before it is an alert, and before that is over; one number, or one for each kind of check."""
    tip: str | dict[Kind, str] = ""
    """What to do about it; one text, or one for each kind of check."""

    @property
    def checked(self) -> bool:
        """Whether anything about it can be suspicious."""
        checks = (self.min, self.max, self.delta, self.collapse, self.stall, self.fall)
        return any(check is not None for check in checks)

    def rows(self, kind: Kind) -> int:
        """The patience of one check."""
        return self.patience.get(kind, 1) if isinstance(self.patience, dict) else self.patience

    def advice(self, kind: Kind) -> str:
        """The tip of one check."""
        return self.tip.get(kind, "") if isinstance(self.tip, dict) else self.tip

    def outside(self, value: float) -> bool:
        """Out of bounds."""
        return (self.min is not None and value < self.min) or (self.max is not None and value > self.max)


class General(Model):
    """The `_global` entry."""

    key_priority: tuple[str, ...] = ()
    """Names or patterns, most important first: order in the table, and what goes last when the screen is small."""
    groups: tuple[str, ...] = ()
    """Order of the blocks of the table."""


class Rules:
    """The rule of every metric: all patterns that match it, in file order, its own name last."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]] | None = None, general: General | None = None) -> None:
        self.general = general or General()
        self._entries = dict(entries or {})
        self._cache: dict[str, Rule] = {}
        self._ranks: dict[str, tuple[int, str]] = {}

    @classmethod
    def load(cls, overlay: Path = OVERLAY) -> Rules:
        """The package's rules, overlaid entry by entry by the user's file if there is one."""
        entries: dict[str, dict[str, Any]] = {}
        for path in (SHIPPED, overlay):
            if path is SHIPPED or path.exists():
                for name, fields in _read(path).items():
                    entries[name] = {**entries.get(name, {}), **fields}
        return cls(entries, General(**entries.pop("_global", {})))

    def __getitem__(self, key: str) -> Rule:
        if key not in self._cache:
            fields: dict[str, Any] = {}
            for pattern, entry in self._entries.items():
                if pattern != key and fnmatchcase(key, pattern):
                    fields.update(entry)
            self._cache[key] = Rule(**{**fields, **self._entries.get(key, {})})
        return self._cache[key]

    def group(self, key: str) -> str:
        """Block of the table."""
        return self[key].group or group(key)

    def rank(self, key: str) -> tuple[int, str]:
        """Sort key: most important first."""
        if key not in self._ranks:
            self._ranks[key] = _position(key, self.general.key_priority), key
        return self._ranks[key]

    def group_rank(self, name: str) -> tuple[int, str]:
        """Sort key of the blocks."""
        return _position(name, self.general.groups), name


def _position(name: str, patterns: tuple[str, ...]) -> int:
    return next((i for i, pattern in enumerate(patterns) if fnmatchcase(name, pattern)), len(patterns))


def _read(path: Path) -> dict[str, dict[str, Any]]:
    data = plain(read_file(path))
    for name, fields in data.items():
        _check(name, fields, shown(path))
    return data


def _check(name: str, fields: Any, source: str) -> None:
    model = General if name == "_global" else Rule
    if not isinstance(fields, dict):
        raise ConfigError(source, f"{name}: expected a mapping such as {{precision: 2}}, got {fields!r}")
    unknown = [key for key in fields if key not in model.model_fields]
    if unknown:
        raise ConfigError(source, f"{name}.{unknown[0]}: unknown key", did_you_mean(unknown[0], model.model_fields))
    try:
        model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in (name, *first["loc"]))
        raise ConfigError(source, f"{where}: {first['msg']}, got {first['input']!r}") from None
