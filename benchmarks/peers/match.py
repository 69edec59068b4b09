"""One process per measurement, contestants in turn: what every comparison with other libraries shares."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from task import Task

PEERS = Path(__file__).parent
Contestant = tuple[str, ...]
"""A script in this folder and what it is told besides the task."""


def run(contestant: Contestant, task: Task, cache: Path, python: str = sys.executable) -> dict[str, Any]:
    """One process of one contestant, on the task's threads; its answer, and the seconds the whole process took."""
    script, *extra = contestant
    threads = str(task.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "LUDUS_CACHE": str(cache)}
    start = time.perf_counter()
    process = subprocess.run(
        [python, str(PEERS / script), task.to_json(), *extra],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {**json.loads(process.stdout.splitlines()[-1]), "seconds": time.perf_counter() - start}


def interleave(names: Iterable[str], repeats: int, measure: Callable[[str, int], None]) -> None:
    """Every contestant once per repeat, each repeat starting with another one."""
    names = list(names)
    for repeat in range(repeats):
        shift = repeat % len(names)
        for name in names[shift:] + names[:shift]:
            measure(name, repeat)


def rates(field: Mapping[str, Contestant], task: Task, repeats: int, cache: Path, label: str) -> dict[str, list[float]]:
    """Training steps per second of every contestant in every repeat (seeds 1, 2, ...)."""
    found: dict[str, list[float]] = {name: [] for name in field}

    def measure(name: str, repeat: int) -> None:
        rate = run(field[name], task.with_seed(repeat + 1), cache)["steps_per_second"]
        found[name].append(rate)
        note(f"{label} {repeat + 1}/{repeats} {name}: {rate:,.0f} steps/s (load {os.getloadavg()[0]:.1f})")

    interleave(field, repeats, measure)
    return found


def ratio(rates: Mapping[str, list[float]], name: str, base: str) -> float:
    """Median of the ratios taken within each repeat: a busy machine slows both alike."""
    return round(statistics.median(a / b for a, b in zip(rates[name], rates[base], strict=True)), 2)


def note(text: str) -> None:
    """Progress for the person waiting; stdout holds results only."""
    print(text, file=sys.stderr, flush=True)


def machine(*packages: str) -> dict[str, object]:
    """What the figures depend on."""
    versions = {}
    for name in ("torch", "numpy", "gymnasium", "stable-baselines3", *packages):
        with suppress(PackageNotFoundError):  # Ludus may be measured alone
            versions[name] = version(name)
    load, python = round(os.getloadavg()[0], 2), platform.python_version()
    return {"cores": os.cpu_count(), "load": load, "python": python, **versions}
