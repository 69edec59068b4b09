"""Line charts as SVG, with their data for the script that shows the values under the pointer."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Template

from ludus.text import clean, number

_TEMPLATE = Template((Path(__file__).parent / "assets" / "chart.svg.j2").read_text(encoding="utf-8"), autoescape=True)


class ChartLine(NamedTuple):
    """One line of a chart; its colour is the CSS class `c0`, `c1`, ..."""

    name: str
    steps: Sequence[float]
    values: Sequence[float]
    colour: int = 0
    dots: bool = False
    spread: Sequence[float] = ()
    """Half the height of a band around the line at each point."""


class Box(NamedTuple):
    """Size and margins of a chart, and the range of its axes."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, step: float, value: float) -> tuple[float, float]:
        """Position of a point in the picture."""
        across = (step - self.x[0]) / (self.x[1] - self.x[0])
        up = (value - self.y[0]) / (self.y[1] - self.y[0])
        x = self.left + across * (self.width - self.left - self.right)
        return round(x, 1), round(self.height - self.bottom - up * (self.height - self.top - self.bottom), 1)


def chart(series: Sequence[ChartLine], *, title: str, wide: bool = False, threshold: float | None = None) -> str:
    """A chart over environment steps; empty if there is no point to draw."""
    shown = [finite for line in series if (finite := _finite(line)).steps]
    if not shown:
        return ""
    box = _box(shown, threshold, wide)
    data = [
        {"name": clean(s.name), "c": s.colour, "x": list(map(_short, s.steps)), "y": list(map(_short, s.values))}
        for s in shown
    ]
    facts = {"box": [box.left, box.right, box.top, box.bottom], "x": box.x, "y": box.y, "series": data}
    goal = []
    if threshold is not None and box.y[0] <= threshold <= box.y[1]:
        goal = [(box.at(0.0, threshold)[1], number(threshold, 2, trim=True))]
    return _TEMPLATE.render(
        box=box,
        end=box.width - box.right,
        wide=wide,
        title=clean(title),
        data=json.dumps(facts, separators=(",", ":")),
        rows=[(box.at(box.x[0], value)[1], label(value)) for value in ticks(*box.y, 6 if wide else 3)],
        columns=[(box.at(step, box.y[0])[0], label(step)) for step in ticks(*box.x, 8 if wide else 4)],
        goal=goal,
        lines=[_line(box, line) for line in shown],
    )


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most about `most` round numbers between two values: multiples of 1, 2, 2.5 or 5 times a power of ten."""
    raw = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next((size * power for size in (1, 2, 2.5, 5, 10) if size * power >= raw), 10 * power)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def label(value: float, _: object = None) -> str:
    """A tick: `12.5k`, `0.002`, `-3`; matplotlib gives its position, too."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.3g}" if value and abs(value) < 1e-3 else f"{value:.4g}"


def _finite(line: ChartLine) -> ChartLine:
    spread = line.spread or [0.0] * len(line.steps)
    points = [point for point in zip(line.steps, line.values, spread, strict=True) if all(map(math.isfinite, point))]
    steps, values, around = ([point[i] for point in points] for i in range(3))
    return line._replace(steps=steps, values=values, spread=around if line.spread else ())


def _box(series: Sequence[ChartLine], threshold: float | None, wide: bool) -> Box:
    steps = [step for line in series for step in line.steps]
    values = [value for line in series for value in line.values]
    low, high = min(values), max(values)
    if threshold is not None and low - 3 * (high - low) <= threshold <= high + 3 * (high - low):
        low, high = min(low, threshold), max(high, threshold)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    # the axis of a metric that is never negative starts at zero if that wastes little room
    floor = 0.0 if 0 <= low < 0.35 * high else low - room
    end = max(steps)
    if wide:
        return Box(960, 300, 46, 14, 12, 26, (0.0, end or 1.0), (floor, high + room))
    return Box(340, 150, 42, 10, 8, 20, (0.0, end or 1.0), (floor, high + room))


def _line(box: Box, line: ChartLine) -> tuple[int, str, str, list[tuple[float, float]]]:
    """Colour, band, path and dots of a line."""
    points = [box.at(x, y) for x, y in zip(line.steps, line.values, strict=True)]
    area = ""
    if line.spread:
        sides = list(zip(line.steps, line.values, line.spread, strict=True))
        upper = [box.at(x, min(y + d, box.y[1])) for x, y, d in sides]
        lower = [box.at(x, max(y - d, box.y[0])) for x, y, d in sides]
        area = _path([*upper, *reversed(lower)]) + "Z"
    return line.colour, area, _path(points), points if line.dots and len(points) <= 60 else points[-1:]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x} {y}" for x, y in points)


def _short(value: float) -> float:
    """The value with six digits."""
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
