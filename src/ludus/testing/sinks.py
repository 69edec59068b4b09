"""The contract of sinks: any row of metrics, at any time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from ludus.metrics.sinks import Row, Sink

FIRST: Row = {"epoch": 1, "env_steps": 64, "updates": 4, "phase": "train", "seconds": 0.5, "train/loss/policy": 0.25}
LATER: Row = {**FIRST, "epoch": 2, "env_steps": 128, "train/loss/policy": 0.125, "val/roll/ep_rew/mean": 12.0}
ODD: Row = {**LATER, "phase": "=1+1\nnew line", "train/loss/policy": math.nan, "train/loss/value": -math.inf}


class SinkContract(ABC):
    """Inherit and override `make`, and `read` if rows can be read back."""

    @abstractmethod
    def make(self, folder: Path) -> Sink:
        """A sink that keeps its files, if it has any, in `folder`."""

    def read(self, folder: Path) -> Sequence[Mapping[str, object]] | None:
        """The rows that were written to `folder`; None if they cannot be read."""
        return None

    def test_rows_are_kept_in_order(self, tmp_path: Path) -> None:
        """Of a resumed run too. Rows may have new keys, numbers that are not finite, and text like a formula."""
        for row in (FIRST, LATER):
            sink, given = self.make(tmp_path), dict(row)
            sink.write(given)
            sink.close()
            assert given == row, "the row was changed"
        found, sink = self.read(tmp_path), self.make(tmp_path)
        sink.write(ODD)
        sink.file(Path(__file__), env_steps=64)
        sink.close()
        sink.close()
        for kept, row in zip(found or (), (FIRST, LATER), strict=found is not None):
            for name, value in row.items():
                assert kept[name] == value or float(str(kept[name])) == value, name
