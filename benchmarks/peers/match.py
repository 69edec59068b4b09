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

import numpy as np
from task import Task

PEERS = Path(__file__).parent
Contestant = tuple[str, ...]
"""A script in this folder and what it is told besides the task."""
FIXED_LOOP: list[float] = []
"""Seconds of the fixed loop before every measurement of this process."""


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


def fixed_loop() -> float:
    """Seconds of a piece of work that never changes: what differs between two calls is the machine."""
    weights, start = np.full((64, 64), 1 / 64, np.float32), time.perf_counter()
    values = weights
    for _ in range(5_000):
        values = values @ weights
    return time.perf_counter() - start


def interleave(names: Iterable[str], repeats: int, measure: Callable[[str, int], None]) -> None:
    """Every contestant once per repeat, each repeat starting with another one; the fixed loop before each."""
    names = list(names)
    for repeat in range(repeats):
        shift = repeat % len(names)
        for name in names[shift:] + names[:shift]:
            FIXED_LOOP.append(fixed_loop())
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
    return {"cores": os.cpu_count(), "load": load, **steadiness(), "python": python, **versions}


def steadiness() -> dict[str, float]:
    """How unsteady the machine was: the fixed loop's median in ms, and its slowest and fastest tenth beside it."""
    if len(FIXED_LOOP) < 2:
        return {}
    low, middle, high = np.quantile(FIXED_LOOP, [0.1, 0.5, 0.9])
    shares = {"slow_share": round(high / middle, 2), "fast_share": round(low / middle, 2)}
    return {"fixed_loop_ms": round(1e3 * middle, 2), **{f"fixed_loop_{name}": share for name, share in shares.items()}}
