"""Throughput of many small runs on this machine, in runs per hour: eight seeds of PPO on CartPole-v1.

    python benchmarks/many_runs.py [--runs 8] [--steps 40960] [--repeats 3]

One JSON line, which is also stored in results/many_runs.json. `ludus` is `ludus train --seed 1..8 --jobs auto`, eager,
with run folders and metrics; `sb3` starts as many processes of Stable-Baselines3 as there are cores, and the next one
when one ends; `sb3_all` starts all eight at once. One thread each, no evaluation, start-up included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from ludus_run import overrides
from match import interleave, machine, note, ratio, run
from task import SPEED, Task

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "many_runs.json"
CONTESTANTS = ("sb3", "sb3_all", "ludus")


def ours(task: Task, runs: int) -> None:
    """One command for all seeds."""
    words = [*overrides(task), "runtime.compile=never", "-q", "--seed", f"1..{runs}", "--jobs", "auto"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "ludus", "train", "CartPole-v1:ppo", *words],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def theirs(task: Task, runs: int, at_once: int) -> None:
    """A process for each seed."""
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda seed: run(("sb3.py",), task.with_seed(seed), HERE), range(1, runs + 1)))


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40_960)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    task = replace(SPEED["A"], total=options.steps)
    found: dict[str, list[float]] = {name: [] for name in CONTESTANTS}

    def measure(name: str, repeat: int) -> None:
        begin = time.perf_counter()
        if name == "ludus":
            ours(task, options.runs)
        else:
            theirs(task, options.runs, options.runs if name == "sb3_all" else os.cpu_count() or 1)
        found[name].append(3_600 * options.runs / (time.perf_counter() - begin))
        note(f"{repeat + 1}/{options.repeats} {name}: {found[name][-1]:,.0f} runs per hour")

    interleave(CONTESTANTS, options.repeats, measure)
    result = {
        name: {"runs_per_hour": round(statistics.median(values)), "times_sb3": ratio(found, name, "sb3")}
        for name, values in found.items()
    }
    head = {"benchmark": "many_runs", "runs": options.runs, "steps": options.steps, "repeats": options.repeats}
    line = json.dumps({**head, **result, "machine": machine()})
    print(line)
    RESULTS.write_text(line + "\n")


if __name__ == "__main__":
    main()
