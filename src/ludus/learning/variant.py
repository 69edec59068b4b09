"""Updates of one kind: one function with one set of static arguments and, when compiled, one shape of batch."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from ludus.learning.package import Compiled


@dataclass
class Variant:
    """What such updates report, the sums of their metrics, and their compiled form."""

    label: str
    """Names it in an order that a resumed run repeats."""
    names: list[str] = field(default_factory=list)
    """Metrics, in the order of a row."""
    compiled: Compiled | None = None
    outputs: list[str] = field(default_factory=list)
    """Outputs of the compiled function, after the row of metrics."""
    stepped: list[str] = field(default_factory=list)
    """Groups that take a step in it."""
    noise: list[tuple[int, ...]] = field(default_factory=list)
    """Shapes of the noise that it is given."""
    sums: Tensor | None = None
    count: int = 0

    def add(self, row: Tensor) -> None:
        """One more update, summed on the device."""
        self.sums = row.clone() if self.sums is None else self.sums.add_(row)
        self.count += 1

    def row(self, row: Tensor) -> dict[str, float]:
        """A row of numbers by name."""
        return dict(zip(self.names, row.tolist(), strict=True))

    def take(self) -> dict[str, float]:
        """Sums since the last call."""
        taken, self.sums = self.sums, None
        return {} if taken is None else self.row(taken)
