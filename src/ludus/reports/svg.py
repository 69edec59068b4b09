"""Line charts as SVG, with their data for the script that shows the values under the pointer."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ludus.text import clean, number


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
        """Position of a point."""
        across = (step - self.x[0]) / (self.x[1] - self.x[0])
        up = (value - self.y[0]) / (self.y[1] - self.y[0])
        return (
            self.left + across * (self.width - self.left - self.right),
            self.height - self.bottom - up * (self.height - self.top - self.bottom),
        )


def chart(series: Sequence[ChartLine], *, title: str, wide: bool = False, threshold: float | None = None) -> str:
    """A chart over environment steps; empty if there is no point to draw."""
    shown = [finite for line in series if (finite := _finite(line)).steps]
    if not shown:
        return ""
    box = _box(shown, threshold, wide)
    parts = [_axes(box, wide)]
    if threshold is not None and box.y[0] <= threshold <= box.y[1]:
        parts.append(_threshold(box, threshold))
    parts += [_line(box, line) for line in shown]
    data = [
        {"name": clean(s.name), "c": s.colour, "x": list(map(_short, s.steps)), "y": list(map(_short, s.values))}
        for s in shown
    ]
    facts = {"box": [box.left, box.right, box.top, box.bottom], "x": box.x, "y": box.y, "series": data}
    return (
        f'<svg class="chart{" wide" if wide else ""}" viewBox="0 0 {box.width:g} {box.height:g}" role="img" '
        f'aria-label="{escape(clean(title))}" data-chart="{escape(json.dumps(facts, separators=(",", ":")))}">'
        f"{''.join(parts)}</svg>"
    )


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most about `most` round numbers between two values: multiples of 1, 2, 2.5 or 5 times a power of ten."""
    raw = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next((size * power for size in (1, 2, 2.5, 5, 10) if size * power >= raw), 10 * power)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def label(value: float) -> str:
    """A tick: `12.5k`, `0.002`, `-3`."""
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


def _axes(box: Box, wide: bool) -> str:
    parts = []
    for value in ticks(*box.y, 6 if wide else 3):
        _, y = box.at(box.x[0], value)
        parts.append(f'<line class="grid" x1="{box.left:g}" x2="{box.width - box.right:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{box.left - 6:g}" y="{y + 3.5:.1f}" text-anchor="end">{label(value)}</text>'
        )
    for step in ticks(*box.x, 8 if wide else 4):
        x, _ = box.at(step, box.y[0])
        parts.append(f'<text class="tick" x="{x:.1f}" y="{box.height - 7:g}" text-anchor="middle">{label(step)}</text>')
    base = box.height - box.bottom
    parts.append(f'<line class="axis" x1="{box.left:g}" x2="{box.width - box.right:g}" y1="{base:g}" y2="{base:g}"/>')
    return "".join(parts)


def _threshold(box: Box, value: float) -> str:
    _, y = box.at(box.x[0], value)
    right = box.width - box.right
    return (
        f'<line class="threshold" x1="{box.left:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{box.left + 6:g}" y="{y - 5:.1f}">solved at {number(value, 2, trim=True)}</text>'
    )


def _line(box: Box, line: ChartLine) -> str:
    points = [box.at(x, y) for x, y in zip(line.steps, line.values, strict=True)]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    parts = [f'<path class="line c{line.colour}" d="{path}"/>']
    if line.spread:
        sides = zip(line.steps, line.values, line.spread, strict=True)
        edges = [(box.at(x, min(y + d, box.y[1])), box.at(x, max(y - d, box.y[0]))) for x, y, d in sides]
        around = [*(upper for upper, _ in edges), *(lower for _, lower in reversed(edges))]
        area = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in around) + "Z"
        parts.insert(0, f'<path class="band c{line.colour}" d="{area}"/>')
    marked = points if line.dots and len(points) <= 60 else points[-1:]
    parts += [f'<circle class="dot c{line.colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in marked]
    return "".join(parts)


def _short(value: float) -> float:
    """The value with six digits."""
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
