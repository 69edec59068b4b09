"""Metrics of updates, summed up on the device until a row is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ludus.learning.ranks import Ranks

Kind = tuple[object, ...]
"""An update function, the names of its scalars, its static arguments."""


@dataclass
class Sums:
    """Sums of the metrics of one kind of update, on the device."""

    names: list[str]
    total: Tensor
    count: int = 1

    def add(self, row: Tensor) -> None:
        """One more update."""
        self.total.add_(row)
        self.count += 1


class MetricSums:
    """Sums for each kind of update since the last call of `take_means`."""

    def __init__(self) -> None:
        self.kinds: dict[Kind, Sums] = {}
        self._resumed: dict[str, Sums] = {}  # those of a checkpoint within an epoch, by label

    def add(self, kind: Kind, names: list[str], row: Tensor) -> None:
        """Add the metrics of one update."""
        if (sums := self.kinds.get(kind) or self._resumed.pop(label_of(kind), None)) is not None:
            sums.add(row)
            self.kinds[kind] = sums
        else:
            self.kinds[kind] = Sums(names, row.clone())

    def take_means(self, ranks: Ranks) -> dict[str, float]:
        """Means since the last call, over all ranks; each over the updates that had this metric."""
        taken, self.kinds, self._resumed = self._labelled(), {}, {}
        totals: dict[str, float] = {}
        counts: dict[str, int] = {}
        for _, sums in sorted(taken, key=lambda pair: pair[0]):  # a resumed run adds up alike
            for name, value in zip(sums.names, sums.total.tolist(), strict=True):
                totals[name] = totals.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + sums.count
        means = [value / counts[name] for name, value in totals.items()]
        if ranks.count > 1 and means:  # all ranks made the same updates, so they have the same names
            means = ranks.average(torch.tensor(means, dtype=torch.float64)).tolist()
        return dict(zip(totals, means, strict=True))

    def _labelled(self) -> list[tuple[str, Sums]]:
        return [*self._resumed.items(), *((label_of(kind), sums) for kind, sums in self.kinds.items())]

    def unread(self) -> list[dict[str, Any]]:
        """Sums that `take_means` would read, for a checkpoint within an epoch."""
        return [{"kind": label, **vars(sums)} for label, sums in self._labelled()]

    def load_unread(self, state: Sequence[Mapping[str, Any]], like: Tensor) -> None:
        """Go on adding up within an epoch, on the device of `like`."""
        self.kinds = {}
        self._resumed = {
            one["kind"]: Sums(list(one["names"]), torch.as_tensor(one["total"]).to(like), one["count"]) for one in state
        }


def label_of(kind: Kind) -> str:
    """A kind of update as text that is the same in every process."""
    return f"{getattr(kind[0], '__qualname__', kind[0])} {kind[1:]}"
