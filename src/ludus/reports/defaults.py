"""What a config would be if nothing but its choices had been made, and where it differs from that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.errors import LudusError
from ludus.reports.differences import Difference, differences

_CHOICES = ("name", "type", "id")
_OWN = ("schema_version", "experiment.name", "experiment.description", "experiment.tags", "experiment.seed")


def changes(config: Mapping[str, Any]) -> list[Difference]:
    """Every value that is not the default of the chosen algorithm and network; none for choices not known here."""
    from ludus.config.compose import dump, parse

    try:
        defaults = dump(parse(_choices(config), "defaults"))
        complete = dump(parse(config, "config"))
    except LudusError:  # made with a plugin, or by another version
        return []
    found = _whole_schedules(differences(defaults, complete), defaults, complete)
    return [change for change in found if change.path not in _OWN]


def _choices(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with only the keys that choose an algorithm, a network part or an environment."""
    kept: dict[str, Any] = {}
    for section in ("environment", "algorithm", "network"):
        part = _chosen(config.get(section))
        if part:
            kept[section] = part
    return kept


def _chosen(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    inner = {key: part for key, item in value.items() if (part := _chosen(item)) and key not in ("kwargs", "wrappers")}
    return {**{key: value[key] for key in _CHOICES if isinstance(value.get(key), str)}, **inner}


def _whole_schedules(found: list[Difference], before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Differences inside of a schedule as one difference of the schedule."""
    merged: dict[str, Difference] = {}
    for change in found:
        outer = change.path.rpartition(".")[0]
        old, new = _at(before, outer), _at(after, outer)
        schedule = any(isinstance(value, Mapping) and "schedule" in value for value in (old, new))
        merged[outer if schedule else change.path] = Difference(outer, old, new) if schedule else change
    return list(merged.values())


def _at(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = data.get(key) if isinstance(data, Mapping) else None
    return data
