"""Compares a config with the defaults of the algorithm, network and environment it chooses."""

from __future__ import annotations

from collections.abc import Mapping

from ludus.errors import LudusError
from ludus.runs.differences import Difference, differences
from ludus.runs.record import MISSING, value_at

_CHOICES = ("name", "type", "id")
_OWN = ("schema_version", "experiment.name", "experiment.description", "experiment.tags", "experiment.seed")


def changes(config: Mapping[str, object]) -> list[Difference]:
    """Every value that differs from the default; none for a config of a plugin or of another version."""
    from ludus.config.compose import dump, parse

    choices = {name: part for name in ("environment", "algorithm", "network") if (part := _chosen(config.get(name)))}
    try:
        defaults, complete = dump(parse(choices, "defaults")), dump(parse(config, "config"))
    except LudusError:
        return []
    found: dict[str, Difference] = {}
    for change in differences(defaults, complete):
        outer = change.path.rpartition(".")[0]
        old, new = (None if (value := value_at(data, outer)) is MISSING else value for data in (defaults, complete))
        schedule = any(isinstance(value, Mapping) and "schedule" in value for value in (old, new))
        found[outer if schedule else change.path] = Difference(outer, old, new) if schedule else change
    return [change for change in found.values() if change.path not in _OWN]


def _chosen(value: object) -> dict[str, object]:
    """The keys of a section that choose an algorithm, a network part or an environment."""
    if not isinstance(value, Mapping):
        return {}
    inner = {key: part for key, item in value.items() if (part := _chosen(item)) and key not in ("kwargs", "wrappers")}
    return {**{key: value[key] for key in _CHOICES if isinstance(value.get(key), str)}, **inner}
