"""Dreamer 3 (1m): one update and one step of acting, Ludus beside sheeprl and the floor; then how our update grows.

python benchmarks/world_models.py --sheeprl .venv-sheeprl/bin/python       everything; README.md says how to make it
python benchmarks/world_models.py --only "vector 8 x 32" --repeats 1       one row; Ludus alone without --sheeprl
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from match import Contestant, interleave, machine, note, ratio, run
from world_model_task import WorldModelTask

PEER, FLOOR = "sheeprl", "floor"
FIELD: dict[str, Contestant] = {
    PEER: ("sheeprl_dreamer.py",),
    "ludus_eager": ("world_models_ludus.py", "runtime.compile=never"),
    "ludus_compiled": ("world_models_ludus.py", "runtime.compile=always"),
    FLOOR: ("world_models_floor.py",),
}
SMALL = WorldModelTask(batch=8, length=32, updates=20)
IMAGE = WorldModelTask(observation="image", updates=4)
COMPARED: dict[str, tuple[WorldModelTask, float]] = {
    "vector 8 x 32": (SMALL, 2.5),
    "vector 16 x 64": (WorldModelTask(updates=10), 2.5),
    "image 64x64 16 x 64": (IMAGE, 1.5),
    "act 1 environment": (WorldModelTask(mode="act", envs=1, steps=2_000), 3.0),
    "act 8 environments": (WorldModelTask(mode="act", envs=8, steps=8_000), 3.0),
}
"""Batch x length of an update, or environments; how many times as fast as the peer we want to be."""
GROWTH: dict[str, WorldModelTask] = {
    **{f"length {length}": replace(SMALL, length=length) for length in (16, 32, 64)},
    **{f"horizon {horizon}": replace(SMALL, horizon=horizon) for horizon in (5, 10, 15, 30)},
    **{f"image {side}x{side}": replace(IMAGE, batch=8, length=32, side=side) for side in (16, 32, 64)},
}
"""8 x 32 with horizon 15, but for what is named."""
Found = dict[str, dict[str, list[float]]]
"""Contestant -> figure -> its value in every repeat."""


class Match:
    """Processes of the contestants in turn, all on the one core of this process."""

    def __init__(self, field: dict[str, Contestant], sheeprl: Path | None, repeats: int, cache: Path) -> None:
        self.field, self.sheeprl, self.repeats, self.cache = field, sheeprl, repeats, cache
        self.parameters: dict[str, dict[str, dict[str, int]]] = {}
        """Trained parameters by kind of observation and contestant."""
        self.versions: dict[str, str] = {}

    def measure(self, label: str, task: WorldModelTask, names: Collection[str]) -> Found:
        """Milliseconds of wall and processor time of every contestant in every repeat (seeds 1, 2, ...)."""
        found: Found = {name: {"ms": [], "cpu_ms": []} for name in names}
        if "ludus_compiled" in names and task.mode == "update":  # building the package is not part of an update
            self.start("ludus_compiled", replace(task, updates=1))

        def once(name: str, repeat: int) -> None:
            got = self.start(name, task.with_seed(repeat + 1))
            for figure, values in found[name].items():
                values.append(got[f"{task.measured}_{figure}"])
            newest = found[name]["ms"][-1]
            note(f"{label} {repeat + 1}/{self.repeats} {name}: {newest:.2f} ms (load {os.getloadavg()[0]:.1f})")

        interleave(names, self.repeats, once)
        return found

    def start(self, name: str, task: WorldModelTask) -> dict[str, Any]:
        """One process."""
        python = str(self.sheeprl) if name == PEER else sys.executable
        got = run(self.field[name], task, self.cache, python)  # type: ignore[arg-type]
        self.versions[name] = f"{got['version']} (torch {got['torch']})"
        if task.mode == "update":
            self.parameters.setdefault(task.observation, {})[name] = got["parameters"]
        return got


def compared(contest: Match, only: list[str] | None) -> dict[str, Any]:
    """Medians of every contestant, and how many times as fast as the peer it is."""
    rows: dict[str, Any] = {}
    for label, (task, aim) in COMPARED.items():
        if only and label not in only:
            continue
        names = [name for name in contest.field if name != FLOOR or task.mode == "update"]
        found = contest.measure(label, task, names)
        rows[label] = {"aim": aim, **{name: figures(found, name) for name in names}}
        if task.mode == "act":
            for name in names:
                rows[label][name]["steps_per_second"] = round(1e3 / rows[label][name]["ms"])
    return rows


def figures(found: Found, name: str) -> dict[str, float]:
    """Medians of one contestant; the ratios are taken within each repeat."""
    medians = {figure: round(statistics.median(values), 3) for figure, values in found[name].items()}
    if PEER not in found or name == PEER:
        return medians
    times = {figure: {who: values[figure] for who, values in found.items()} for figure in medians}
    return {
        **medians,
        f"times_{PEER}": ratio(times["ms"], PEER, name),
        f"times_{PEER}_cpu_time": ratio(times["cpu_ms"], PEER, name),
    }


def growth(contest: Match, only: list[str] | None) -> dict[str, Any]:
    """Our update by length, horizon and size of the image."""
    ours = [name for name in contest.field if name not in (PEER, FLOOR)]
    return {
        label: {name: figures(found, name) for name in ours}
        for label, task in GROWTH.items()
        if not only or label in only
        for found in [contest.measure(label, task, ours)]
    }


def table(title: str, rows: dict[str, Any], names: list[str]) -> None:
    """For the person waiting."""
    if not rows:
        return
    note(f"\n{title:<24}" + "".join(f"{name:>24}" for name in names))
    for label, row in rows.items():
        note(f"{label:<24}" + "".join(f"{cell(row[name]) if name in row else '':>24}" for name in names))


def cell(got: dict[str, float]) -> str:
    """Milliseconds, or steps per second, and in brackets how many times as fast as the peer."""
    speed = f"{got['steps_per_second']:,} steps/s" if "steps_per_second" in got else f"{got['ms']:,.1f} ms"
    return f"{speed} ({got[f'times_{PEER}']:.2f}x)" if f"times_{PEER}" in got else speed


def main() -> None:
    """Measure; two tables for the reader, one JSON line for the rest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sheeprl", type=Path, help="the interpreter sheeprl is installed for")
    parser.add_argument("--only", nargs="+", choices=[*COMPARED, *GROWTH], help="these rows")
    parser.add_argument("--contestants", nargs="+", choices=FIELD, help="these contestants")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each contestant (seeds 1, 2, ...)")
    args = parser.parse_args()
    field = {name: FIELD[name] for name in args.contestants or FIELD if name != PEER or args.sheeprl}
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core for all, since children inherit it
    with tempfile.TemporaryDirectory() as cache:
        contest = Match(field, args.sheeprl, args.repeats, Path(cache))
        rows, grown = compared(contest, args.only), growth(contest, args.only)
    for observation, counts in contest.parameters.items():
        for name, parts in counts.items():
            note(f"{observation} {name}: {sum(parts.values()):,} parameters {parts}")
    table("update, act", rows, list(field))
    table("growth", grown, [name for name in field if name not in (PEER, FLOOR)])
    facts = {"parameters": contest.parameters, "versions": contest.versions, "repeats": args.repeats}
    result = {"benchmark": "world_models", "compared": rows, "growth": grown, **facts, "machine": machine()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
