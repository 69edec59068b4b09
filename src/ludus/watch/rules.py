"""metrics.yaml: how each metric is displayed and when it raises an alert."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, ValidationError

from ludus.config.model import Model
from ludus.config.read import plain, read_file
from ludus.errors import ConfigError
from ludus.metrics.names import group
from ludus.text import did_you_mean, near

SHIPPED = Path(__file__).parents[1] / "configs" / "metrics.yaml"
OVERLAY = Path("configs/metrics.yaml")
Kind = Literal["min", "max", "delta", "collapse", "stall", "fall"]
"""Kinds of checks."""


class Rule(Model):
    """One metric, or every metric a pattern such as `*/entropy` matches."""

    precision: Annotated[int, Field(ge=0, le=10)] | Literal["score"] = 3
    """Decimals; `score`: one, and three below ten."""
    trim: bool = False
    """Drop trailing zeros."""
    highlight: bool = False
    """A main metric: bright in the table, part of the final summary."""
    bold: bool = False
    """Bold value."""
    show_in_table: bool = True
    """Show it in the console; the files have every metric."""
    description: str = ""
    """Description for reports."""
    group: str | None = None
    """Group in the table; by default the first parts of the name."""
    sparkline: bool = True
    """Draw a sparkline beside the value."""
    better: Literal["up", "down"] | None = None
    """Which direction is an improvement."""
    min: float | None = None
    """A lower value is yellow and raises an alert."""
    max: float | None = None
    """A higher value is yellow and raises an alert."""
    delta: Literal["non_decreasing", "non_increasing"] | None = None
    """A change in the other direction raises an alert."""
    collapse: float | None = Field(default=None, gt=0, lt=1)
    """A fall below this share of its highest value raises an alert; for positive metrics."""
    stall: PositiveInt | None = None
    """An alert after this number of rows, and a third of all rows, without a new best value."""
    fall: float | None = Field(default=None, gt=0)
    """Losing this share of the improvement from the first to the best value raises an alert."""
    patience: PositiveInt | dict[Kind, PositiveInt] = 1
    """Consecutive rows before an alert begins or ends; one number, or one for each kind of check."""
    extreme: dict[Literal["min", "max"], float] = {}
    """A value below this `min` or above this `max` raises the alert at once, whatever the patience."""
    tip: str | dict[Kind, str] = ""
    """Advice; one text, or one for each kind of check."""

    @property
    def checked(self) -> bool:
        """Whether the rule has any check."""
        checks = (self.min, self.max, self.delta, self.collapse, self.stall, self.fall)
        return any(check is not None for check in checks)

    def of(self, kind: Kind) -> tuple[int, str]:
        """Patience and tip of one check."""
        patience = self.patience.get(kind, 1) if isinstance(self.patience, dict) else self.patience
        return patience, self.tip.get(kind, "") if isinstance(self.tip, dict) else self.tip

    def is_extreme(self, kind: Kind, value: float) -> bool:
        """Whether a value is so far out of bounds that one row is enough."""
        lowest, highest = self.extreme.get("min", -math.inf), self.extreme.get("max", math.inf)
        return (kind == "min" and value < lowest) or (kind == "max" and value > highest)

    def outside(self, value: float) -> bool:
        """Whether a value is out of bounds."""
        return (self.min is not None and value < self.min) or (self.max is not None and value > self.max)


class General(Model):
    """The `_global` entry."""

    key_priority: tuple[str, ...] = ()
    """Names or patterns, most important first: the order in the table, of which a small screen shows the beginning."""
    groups: tuple[str, ...] = ()
    """Order of the groups in the table."""
    step_key: Literal["env_steps", "updates", "epoch", "seconds"] | None = None
    """Column that is the x axis of TensorBoard and W&B; without it, what the budget counts."""


class Rules:
    """The rule of each metric, merged from all patterns that match it, in file order, and its own entry."""

    def __init__(self, entries: Mapping[str, dict[str, object]] | None = None, general: General | None = None) -> None:
        self.general = general or General()
        self._entries = dict(entries or {})
        self._cache: dict[str, Rule] = {}
        self._ranks: dict[str, tuple[int, str]] = {}

    @classmethod
    def load(cls, overlay: Path = OVERLAY) -> Rules:
        """The package's rules, overridden entry by entry by the user's file."""
        entries: dict[str, dict[str, object]] = {}
        for path in (SHIPPED, overlay):
            if path is SHIPPED or path.exists():
                for name, fields in plain(read_file(path)).items():
                    entries[name] = {**entries.get(name, {}), **_check(name, fields, near(path))}
        return cls(entries, General.model_validate(entries.pop("_global", {})))

    def __getitem__(self, key: str) -> Rule:
        if key not in self._cache:
            fields: dict[str, object] = {}
            for pattern, entry in self._entries.items():
                if pattern != key and fnmatchcase(key, pattern):
                    fields.update(entry)
            self._cache[key] = Rule.model_validate({**fields, **self._entries.get(key, {})})
        return self._cache[key]

    def group(self, key: str) -> str:
        """The metric's group in the table."""
        return self[key].group or group(key)

    def rank(self, key: str) -> tuple[int, str]:
        """Sort key: most important first."""
        if key not in self._ranks:
            self._ranks[key] = _position(key, self.general.key_priority), key
        return self._ranks[key]

    def group_rank(self, name: str) -> tuple[int, str]:
        """Sort key of the groups."""
        return _position(name, self.general.groups), name


def _position(name: str, patterns: tuple[str, ...]) -> int:
    return next((i for i, pattern in enumerate(patterns) if fnmatchcase(name, pattern)), len(patterns))


def _check(name: str, fields: object, source: str) -> dict[str, object]:
    """The fields of an entry; ConfigError names the field that is wrong."""
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
    return fields
