"""World Models: environment steps per second while a generation is judged, by the number of worker processes.

python benchmarks/evolution.py                     CarRacing in this process, with one worker and with one per core
python benchmarks/evolution.py --workers 1 2 4     prints one JSON line, progress to stderr

Candidates of the shipped CarRacing config drive with networks as they are drawn; every contestant judges the same ones.
Seconds are those of the clock, because workers are processes of their own; contestants take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from match import interleave, machine, note

from ludus.algorithms import PhaseContext
from ludus.config.compose import load
from ludus.experiment import build

SPEC = "CarRacing-v3:world_models"


def judging(workers: int, steps: int) -> tuple[Callable[[], int], Callable[[], None]]:
    """(some steps of a generation, close) of a run with so many workers; 0: everything in this process."""
    place = ["environment.vectorization=sync"]
    if workers:
        place = ["environment.vectorization=async", f"environment.workers={workers}"]
    words = [*place, "runtime.threads=1", "runtime.compile=never", f"algorithm.rollout_steps={steps}"]
    run = build(load(SPEC, words).config)
    phase = run.scheduler.phases[-1]
    run.enter(phase)
    total = run.config.training.total_timesteps
    cfg = run.phase_configs[-1]
    now = PhaseContext(cfg=cfg, name=phase.name, type="online", position=0, total=total, remaining_steps=total)
    return lambda: run.algorithm.hooks()["update_controller"](now).env_steps, run.close


def main() -> None:
    """Measure; one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 1, os.cpu_count() or 1])
    parser.add_argument("--steps", type=int, default=25, help="steps of every environment in one measurement")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    runs = {str(workers): judging(workers, args.steps) for workers in args.workers}
    found: dict[str, list[float]] = {name: [] for name in runs}

    def measure(name: str, repeat: int) -> None:
        judge, _ = runs[name]
        start = time.perf_counter()
        steps = judge()
        found[name].append(steps / (time.perf_counter() - start))
        note(f"{repeat}/{args.repeats} {name} workers: {found[name][-1]:,.0f} steps/s")

    for name in runs:  # the first steps reset environments
        measure(name, 0)
        found[name].clear()
    interleave(runs, args.repeats, lambda name, repeat: measure(name, repeat + 1))
    for _, close in runs.values():
        close()
    base = found[str(args.workers[0])]
    result: dict[str, Any] = {"benchmark": "evolution", "spec": SPEC}
    for name, rates in found.items():
        times = round(statistics.median(one / first for one, first in zip(rates, base, strict=True)), 2)
        result[name] = {"steps_per_second": round(statistics.median(rates), 1), "times_first": times}
    print(json.dumps({**result, "machine": machine()}))


if __name__ == "__main__":
    main()
