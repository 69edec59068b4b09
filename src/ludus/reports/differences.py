"""What a resumed run may change about itself, and what would make it another run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.errors import ConfigError, LudusError

MAY_CHANGE = (
    "experiment.description",
    "experiment.tags",
    "logging.",
    "training.total_timesteps",
    "training.total_updates",
    "training.evaluation.",
    "training.stop.",
    "training.checkpoints.",
    "training.on_nan",
)


@dataclass(frozen=True)
class Difference:
    """One field that is not what it was."""

    path: str
    before: Any
    after: Any

    @property
    def allowed(self) -> bool:
        """Whether the run stays the same run."""
        return any(self.path == prefix or (prefix[-1] == "." and self.path.startswith(prefix)) for prefix in MAY_CHANGE)

    def __str__(self) -> str:
        return f"{self.path}: {self.before!r} -> {self.after!r}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> list[Difference]:
    """Field by field, in the order of the files."""
    found: list[Difference] = []
    for key in dict.fromkeys([*before, *after]):
        old, new, path = before.get(key), after.get(key), f"{prefix}{key}"
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{path}.")
        elif old != new:
            found.append(Difference(path, old, new))
    return found


def edits(folder: Path, trained: Mapping[str, Any]) -> list[Difference]:
    """Where config.yaml says something else than what was trained; none if it cannot be read."""
    from ludus.config import files

    try:
        return differences(trained, files.plain(files.read(folder / "config.yaml")))
    except LudusError:
        return []


def refuse_what_may_not_change(found: list[Difference]) -> None:
    """One line with every field that stands in the way, and those that do not."""
    refused = [difference for difference in found if not difference.allowed]
    if not refused:
        return
    fine = [difference.path for difference in found if difference.allowed]
    problem = "a resumed run cannot change " + ", ".join(map(str, refused))
    also = f" ({', '.join(fine)} may change)" if fine else ""
    remedy = "leave it, or start a new run from its weights: ludus resume RUN --mode warm_start"
    raise ConfigError("resume", problem + also, remedy)


def refuse_what_was_edited(found: list[Difference], path: Path) -> None:
    """A config.yaml that says something else than what was trained, in a field that may not change."""
    refused = [difference for difference in found if not difference.allowed]
    if refused:
        problem = "was edited, but the run was trained otherwise: " + ", ".join(map(str, refused))
        remedy = "undo that; changes belong on the command line, these on that of ludus resume RUN --mode warm_start"
        raise ConfigError(str(path), problem, remedy)
