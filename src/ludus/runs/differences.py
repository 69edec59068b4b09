"""Differences between two configs, or of a config from the defaults, and which of them a resumed run may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ludus.errors import ConfigError, LudusError
from ludus.runs.record import MISSING, value_at

MAY_CHANGE = ("experiment.description", "experiment.tags", "logging.", "training.total_timesteps",
              "training.total_updates", "training.evaluation.", "training.stop.", "training.checkpoints.",
              "training.on_nan")  # fmt: skip
_CHOICES = ("name", "type", "id")
_OWN = ("schema_version", "experiment.name", "experiment.description", "experiment.tags", "experiment.seed")


@dataclass(frozen=True)
class Difference:
    """One field with two values."""

    path: str
    before: object
    after: object

    @property
    def allowed(self) -> bool:
        """Whether a resumed run may change this field."""
        return any(self.path == prefix or (prefix[-1] == "." and self.path.startswith(prefix)) for prefix in MAY_CHANGE)

    def __str__(self) -> str:
        return f"{self.path}: {self.before!r} -> {self.after!r}"


def differences(before: Mapping[str, object], after: Mapping[str, object], prefix: str = "") -> list[Difference]:
    """All fields that differ, in the order of the files."""
    found: list[Difference] = []
    for key in dict.fromkeys([*before, *after]):
        old, new, path = before.get(key), after.get(key), f"{prefix}{key}"
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{path}.")
        elif old != new:
            found.append(Difference(path, old, new))
    return found


def edits(folder: Path, trained: Mapping[str, object]) -> list[Difference]:
    """Where config.yaml differs from the config that was trained; nothing if it cannot be read."""
    from ludus.config.read import plain, read_file

    try:
        return differences(trained, plain(read_file(folder / "config.yaml")))
    except LudusError:
        return []


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


def refuse_what_may_not_change(found: list[Difference]) -> None:
    """Raise with every field that a resumed run may not change."""
    refused = ", ".join(str(difference) for difference in found if not difference.allowed)
    fine = ", ".join(difference.path for difference in found if difference.allowed)
    if refused:
        problem = f"a resumed run cannot change {refused}" + (f" ({fine} may change)" if fine else "")
        remedy = "leave it, or start a new run from its weights: ludus resume RUN --mode warm_start"
        raise ConfigError("resume", problem, remedy)


def refuse_what_was_edited(found: list[Difference], path: Path) -> None:
    """Raise if config.yaml was edited in a field that may not change."""
    refused = [difference for difference in found if not difference.allowed]
    if refused:
        problem = "was edited, but the run was trained otherwise: " + ", ".join(map(str, refused))
        remedy = "undo that; changes belong on the command line, these on that of ludus resume RUN --mode warm_start"
        raise ConfigError(str(path), problem, remedy)
