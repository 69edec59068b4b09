"""Sinks take the rows of metrics: files, TensorBoard, W&B, the console, the monitor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

Row = Mapping[str, float | str]
"""One flush of the Recorder; sinks may keep it but must not change it."""


class Sink(ABC):
    """Gets one row per flush."""

    warning: str = ""
    """A warning for the user when the run starts."""
    remark: str = ""
    """What else to tell then."""

    @abstractmethod
    def write(self, row: Row) -> None:
        """Take one row."""

    def file(self, path: Path, env_steps: int) -> None:  # noqa: B027 - most sinks take rows only
        """Take a finished file, such as a video, or the folder of a checkpoint, which another thread has written."""

    def close(self) -> None:  # noqa: B027 - most sinks have nothing to finish
        """Finish; no row comes after this."""
