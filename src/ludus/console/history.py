"""The console's memory of a run, of bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ludus.metrics.names import COLUMNS

_CAPACITY = 80


class Series:
    """One metric over the whole run in fewer than 80 points; when full, pairs of neighbours are averaged."""

    __slots__ = ("_held", "_stride", "_sum", "count", "last", "max", "mean", "min", "points", "previous", "spread")

    def __init__(self) -> None:
        self.points: list[float] = []
        self.last = self.previous = math.nan
        self.min, self.max, self.mean, self.spread = math.inf, -math.inf, 0.0, 0.0
        self.count = 0
        self._stride, self._held, self._sum = 1, 0, 0.0

    def add(self, value: float) -> None:
        """Append a value; minimum, maximum, mean and deviation count finite values only."""
        self.last = value
        if math.isfinite(value):
            self.count += 1
            self.min, self.max = min(self.min, value), max(self.max, value)
            step = value - self.mean  # Welford
            self.mean += step / self.count
            self.spread += step * (value - self.mean)
        self._sum += value
        self._held += 1
        if self._held == self._stride:
            self.points.append(self._sum / self._held)
            self._sum, self._held = 0.0, 0
            if len(self.points) == _CAPACITY:
                pairs = zip(self.points[::2], self.points[1::2], strict=True)
                self.points = [(a + b) / 2 for a, b in pairs]
                self._stride *= 2

    @property
    def std(self) -> float:
        """Standard deviation of the finite values."""
        return math.sqrt(max(self.spread, 0.0) / self.count) if self.count else math.nan

    def curve(self) -> list[float]:
        """The points so far; the last one may be of fewer values."""
        return [*self.points, self._sum / self._held] if self._held else self.points


class History:
    """A Series per metric, and the current position of the run."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.position: dict[str, float | str] = {}

    def extend(self, rows: Iterable[Mapping[str, float | str]]) -> None:
        """Add rows; `previous` of a series becomes its last value before them."""
        started: set[str] = set()
        for row in rows:
            for key, value in row.items():
                if key in COLUMNS:
                    self.position[key] = value
                elif not isinstance(value, str):
                    if (series := self.series.get(key)) is None:
                        series = self.series[key] = Series()
                    if key not in started:
                        started.add(key)
                        series.previous = series.last
                    series.add(value)
