"""Filters and sorts runs by any field or config value: `algorithm=ppo`, `reward>400`, `algorithm.lr<=1e-3`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import ge, gt, le, lt

from ludus.archive.record import ALIASES, FIELDS, MISSING, Record, paths
from ludus.errors import ConfigError
from ludus.text import did_you_mean

_FILTER = re.compile(r"\s*([A-Za-z_][\w.\-]*)\s*(==|!=|>=|<=|!~|=|>|<|~)(.*)", re.DOTALL)
_RISING = {"id", "name", "spec", "algorithm", "environment", "seed", "state", "reason", "config_hash", "commit", "tags"}
_ORDER: dict[str, Callable[..., bool]] = {">": gt, "<": lt, ">=": ge, "<=": le}


@dataclass(frozen=True)
class Filter:
    """One condition on a run."""

    key: str
    operator: str
    text: str
    """The value as written."""

    def matches(self, record: Record) -> bool:
        """Whether the condition holds; for a run without such a value only negated conditions do."""
        found = record.get(self.key)
        if self.operator in ("!=", "!~"):
            return not Filter(self.key, "=" if self.operator == "!=" else "~", self.text).matches(record)
        if found is MISSING:
            return False
        if isinstance(found, tuple | list):
            return any(self._holds(item) for item in found) or (self.operator == "=" and list(found) == self.value)
        return self._holds(found)

    @property
    def value(self) -> object:
        """The value of the text, parsed like a value of a config file."""
        from ludus.config.read import scalar

        text = self.text.strip()
        return [] if text == "[]" else scalar(text)

    def _holds(self, found: object) -> bool:
        if self.operator == "~":
            return found is not None and re.search(self.text.strip(), shown(found)) is not None
        text = self.text.strip().lower()
        wanted = text if isinstance(found, str) else self.value
        if self.operator in _ORDER:
            found = found.lower() if isinstance(found, str) else found
            return _comparable(found, wanted) and _ORDER[self.operator](found, wanted)
        if isinstance(found, str):
            return found.lower() == text or fnmatchcase(found.lower(), text)
        return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)


def parse(text: str) -> Filter:
    """Parse `key=value`; operators: = != > >= < <= ~ !~ (regular expression); `=` accepts `*` and `?`."""
    match = _FILTER.fullmatch(text)
    if match is None:
        raise ConfigError(f"--filter {text}", "is not a condition", "write key=value, key>value or key~regex")
    key, operator, value = match.groups()
    if value[:1] in ("=", "<", ">"):
        raise ConfigError(f"--filter {text}", f"there is no operator {operator}{value[0]}", "use = != > >= < <= ~ !~")
    if operator in ("~", "!~"):
        try:
            re.compile(value.strip())
        except re.error as error:
            problem = f"not a regular expression: {error}"
            raise ConfigError(f"--filter {text}", problem, "correct it, or use =") from None
    return Filter(key, "=" if operator == "==" else operator, value)


def is_filter(text: str) -> bool:
    """Whether a word is a condition and not the name of a run."""
    return _FILTER.fullmatch(text) is not None


def select(records: Sequence[Record], filters: Iterable[Filter]) -> list[Record]:
    """The runs that fulfil every condition; a key that no run has is an error."""
    chosen = list(records)
    for condition in filters:
        check_key(condition.key, records, f"--filter {condition.key}{condition.operator}{condition.text}")
        chosen = [record for record in chosen if condition.matches(record)]
    return chosen


def order(records: Sequence[Record], by: str) -> list[Record]:
    """Sort by `field`, `field:asc` or `field:desc`; by default text ascends, numbers descend; missing values last."""
    key, colon, direction = by.partition(":")
    if colon and direction not in ("asc", "desc"):
        raise ConfigError(f"--sort {by}", f"'{direction}' is not a direction", "use asc or desc")
    check_key(key, records, f"--sort {by}")
    falling = direction == "desc" if colon else ALIASES.get(key, key) in FIELDS and ALIASES.get(key, key) not in _RISING
    ranked = [(_rank(record.get(key)), record) for record in records]
    known = sorted((pair for pair in ranked if pair[0]), key=lambda pair: pair[0], reverse=falling)
    return [record for _, record in (*known, *(pair for pair in ranked if not pair[0]))]


def check_key(key: str, records: Sequence[Record], where: str) -> None:
    """Refuse a key that is neither a field nor a path of any config."""
    if ALIASES.get(key, key) in FIELDS or not records or any(record.get(key) is not MISSING for record in records):
        return
    known = dict.fromkeys([*FIELDS, *ALIASES, *(path for record in records[:50] for path in paths(record.config))])
    close = did_you_mean(key, known)
    remedy = close if close.startswith("did you") else f"fields are {', '.join(FIELDS)}, or a path of the config"
    raise ConfigError(where, f"no run has '{key}'", remedy)


def shown(value: object) -> str:
    """A value as text, as filters match it and tables print it."""
    if value is None or value is MISSING:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, tuple | list):
        return ", ".join(shown(item) for item in value)
    return str(value)


def _comparable(found: object, wanted: object) -> bool:
    numbers = all(isinstance(value, int | float) for value in (found, wanted))
    return numbers or (isinstance(found, str) and isinstance(wanted, str))


def _rank(value: object) -> tuple[object, ...]:
    """Sort key: numbers before text; empty if there is no value."""
    if value is None or value is MISSING or (isinstance(value, float) and math.isnan(value)):
        return ()
    return (0, float(value)) if isinstance(value, int | float) else (1, shown(value).lower())
