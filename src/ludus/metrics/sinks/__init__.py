"""Where metric rows go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

Row = Mapping[str, float | str]
"""One flush of the Recorder; sinks may keep it, nobody changes it."""


class Sink(ABC):
    """Takes one row per flush."""

    warning: str = ""
    """What a person must hear when a run begins."""

    @abstractmethod
    def write(self, row: Row) -> None:
        """Take one row."""

    def file(self, path: Path, env_steps: int) -> None:  # noqa: B027 - most take rows only
        """Take a file that is ready; each is told once."""

    def close(self) -> None:  # noqa: B027 - most have nothing to finish
        """Finish; nothing is written after this."""
