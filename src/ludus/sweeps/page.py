"""One self-contained page about a sweep: history, importance, parallel coordinates, all trials. It needs no network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ludus import __version__, files
from ludus.reports.columns import config_text
from ludus.reports.svg import label, ticks
from ludus.sweeps.journal import importances
from ludus.sweeps.ledger import Ledger
from ludus.sweeps.results import UNCHANGED, Row, best, command, rows, titles
from ludus.sweeps.space import Parameter
from ludus.text import clean, points

WIDTH, HEIGHT, MARGIN = 960.0, 280.0, 48.0
MOST_TICKS = 8


@dataclass(frozen=True)
class Axis:
    """One vertical axis of the parallel coordinates."""

    title: str
    x: float
    ticks: list[tuple[float, str]]
    """Height and text."""


def write_page(ledger: Ledger, path: Path) -> None:
    """Write the page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "assets"), undefined=StrictUndefined, autoescape=True,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found, first, weights = rows(ledger), best(ledger), importances(ledger)
    done = [row for row in found if row.state == "complete" and row.value is not None]
    text = environment.get_template("sweep.html.j2").render(
        name=ledger.spec.name,
        spec=ledger.spec,
        version=__version__,
        titles=titles(ledger),
        rows=[(row, [clean(cell, 200) for cell in row.cells()], first is not None and row == first) for row in found],
        best=first,
        command=command(ledger, first) if first else "",
        best_value=points(first.value) if first and first.value is not None else "",
        counts=_counts(found, ledger.plan.trials),
        importances=[(key, f"{share:.0%}", round(share * 100, 1)) for key, share in weights.items()],
        history=_history(done, ledger.spec.metric.goal == "maximize"),
        axes=_axes(ledger, done),
        lines=_lines(ledger, done),
        width=WIDTH,
        height=HEIGHT,
        margin=MARGIN,
    )
    files.write_text(path, text)


def _counts(found: Sequence[Row], planned: int) -> str:
    words = {"complete": "complete", "pruned": "stopped early", "failed": "failed", "open": "unfinished"}
    told = [f"{count} {word}" for state, word in words.items() if (count := sum(row.state == state for row in found))]
    return f"{planned} trials: {', '.join(told) or 'none has begun'}"


def _history(done: Sequence[Row], more_is_better: bool) -> dict[str, Any]:
    """Dots of all trials, the line of the best so far, and the ticks of both axes."""
    values = [row.value or 0.0 for row in done]
    if not values:
        return {"dots": [], "path": "", "rows": [], "columns": []}
    low, high = min(values), max(values)
    low, high = (low - 0.05 * (high - low), high + 0.05 * (high - low)) if high > low else (low - 1, high + 1)
    last = max(done[-1].number, 1)
    at = [(_across(row.number / last), _up((row.value or 0.0), low, high)) for row in done]
    line, top = [], -math.inf
    for row, (x, _) in zip(done, at, strict=True):
        signed = (row.value or 0.0) if more_is_better else -(row.value or 0.0)
        top = max(top, signed)
        line.append(f"{x:.1f} {_up(top if more_is_better else -top, low, high):.1f}")
    dots = [(round(x, 1), round(y, 1), f"trial {row.number}: {points(row.value or 0.0)}")
            for row, (x, y) in zip(done, at, strict=True)]  # fmt: skip
    steps = [value for value in ticks(0, last, MOST_TICKS) if value == int(value)]
    return {
        "dots": dots,
        "path": "M" + "L".join(line),
        "rows": [(round(_up(value, low, high), 1), label(value)) for value in ticks(low, high, 5)],
        "columns": [(round(_across(value / last), 1), f"{value:.0f}") for value in steps],
    }


def _axes(ledger: Ledger, done: Sequence[Row]) -> list[Axis]:
    parameters = ledger.spec.parameters
    count = len(parameters)
    axes = [Axis(one.key, _across(i / count), _ticks(one)) for i, one in enumerate(parameters)]
    values = [row.value for row in done if row.value is not None] or [0.0]
    low, high = min(values), max(values)
    marks = [(_up(value, low, high), label(value)) for value in (ticks(low, high, 5) if high > low else [low])]
    return [*axes, Axis(ledger.spec.metric.name, _across(1.0), marks)]


def _lines(ledger: Ledger, done: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Path, colour and text of each trial; better ones are drawn later and warmer."""
    values = [row.value or 0.0 for row in done]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    sign = 1 if ledger.spec.metric.goal == "maximize" else -1
    parameters, found = ledger.spec.parameters, []
    for row in sorted(done, key=lambda row: sign * (row.value or 0.0)):
        if any(value is UNCHANGED for value in row.values.values()):
            continue  # the base itself
        heights = [_height(one, row.values[one.key]) for one in parameters]
        share = 0.5 if high == low else ((row.value or 0.0) - low) / (high - low)
        share = share if sign > 0 else 1 - share
        ends = [*heights, _up(row.value or 0.0, low, high)]
        path = "M" + "L".join(f"{_across(i / len(parameters)):.1f} {y:.1f}" for i, y in enumerate(ends))
        told = ", ".join(f"{key}={config_text(value)}" for key, value in row.values.items())
        hue = round(230 - 200 * share)
        found.append(
            (path, f"hsl({hue} 70% 50%)", f"trial {row.number}: {points(row.value or 0.0)}; {clean(told, 300)}")
        )
    return found


def _ticks(parameter: Parameter) -> list[tuple[float, str]]:
    if parameter.kind == "choice":
        return [(_height(parameter, value), clean(config_text(value), 24)) for value in parameter.values]
    if parameter.kind in ("normal", "log_normal"):
        return [(_height(parameter, parameter.value(q)), label(parameter.value(q))) for q in (0.02, 0.5, 0.98)]
    if parameter.kind.startswith("log"):
        powers = range(math.floor(math.log10(parameter.low)), math.ceil(math.log10(parameter.high)) + 1)
        marks = [10.0**power for power in powers if parameter.low <= 10.0**power <= parameter.high]
        marks = marks if len(marks) > 1 else [parameter.low, parameter.high]
        return [(_height(parameter, value), label(value)) for value in marks]
    return [(_height(parameter, value), label(value)) for value in ticks(parameter.low, parameter.high, 5)]


def _height(parameter: Parameter, value: Any) -> float:
    """Where a value stands on its axis."""
    if parameter.kind == "choice":
        known = list(parameter.values)
        return _up(known.index(value) if value in known else 0, 0, max(len(known) - 1, 1))
    low, high, number = parameter.low, parameter.high, float(value)
    if parameter.kind in ("normal", "log_normal"):
        low, high = parameter.value(0.001), parameter.value(0.999)
    if parameter.kind.startswith("log"):
        low, high, number = math.log(low), math.log(high), math.log(max(number, 1e-300))
    return _up(min(max(number, low), high), low, high)


def _across(share: float) -> float:
    return MARGIN + share * (WIDTH - 2 * MARGIN)


def _up(value: float, low: float, high: float) -> float:
    share = 0.5 if high <= low else (value - low) / (high - low)
    return HEIGHT - MARGIN / 2 - share * (HEIGHT - 1.5 * MARGIN)
