"""SAC on HalfCheetah-v5 and DQN on CartPole-v1, one update per step: Ludus, Stable-Baselines3, a CleanRL-shaped loop.

python benchmarks/offpolicy.py                       both, SAC on one and on two threads
python benchmarks/offpolicy.py --only sac --threads 1 --repeats 3
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from match import Contestant, interleave, machine, note, ratio, run
from off_policy_task import TASKS, OffPolicyTask

FIELD: dict[str, Contestant] = {
    "sb3": ("off_policy_sb3.py",),
    "cleanrl_shaped": ("off_policy_cleanrl.py",),
    "ludus_eager": ("off_policy_ludus.py", "runtime.compile=never"),
    "ludus_compiled": ("off_policy_ludus.py", "runtime.compile=always"),
    "floor": ("off_policy_floor.py",),
}
"""The floor is that of DQN; `sac_floor.py` has the one of SAC."""
AIMS = {("sac", 1): 2.0, ("sac", 2): 2.5, ("dqn", 1): 3.0}


def measure(field: dict[str, Contestant], task: OffPolicyTask, repeats: int, cache: Path) -> dict[str, Any]:
    """Medians of wall and processor speed, and of their ratios to Stable-Baselines3 within each repeat."""
    found: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in field} for kind in ("wall", "cpu")}

    def once(name: str, repeat: int) -> None:
        got = run(field[name], task.with_seed(repeat + 1), cache)  # type: ignore[arg-type]
        found["wall"][name].append(got["steps_per_second"])
        found["cpu"][name].append(got["per_cpu_second"])
        note(f"{task.algorithm} {repeat + 1}/{repeats} {name}: {got['steps_per_second']:,.0f} steps/s")

    interleave(field, repeats, once)
    return {
        name: {
            "steps_per_second": round(statistics.median(found["wall"][name]), 1),
            "times_sb3": ratio(found["wall"], name, "sb3"),
            "times_sb3_cpu_time": ratio(found["cpu"], name, "sb3"),
        }
        for name in field
    }


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(TASKS), help="one of the two tasks")
    parser.add_argument("--threads", type=int, choices=(1, 2), help="one number of threads")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each contestant (seeds 1, 2, ...)")
    parser.add_argument("--contestants", nargs="+", help="these contestants; sb3 is always among them")
    args = parser.parse_args()
    field = {name: how for name, how in FIELD.items() if not args.contestants or name in {"sb3", *args.contestants}}
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        for (name, threads), aim in AIMS.items():
            if args.only not in (None, name) or args.threads not in (None, threads):
                continue
            task = replace(TASKS[name], threads=threads)
            if "ludus_compiled" in field:  # building the package is not training speed
                run(field["ludus_compiled"], replace(task, total=task.learning_starts + 300), Path(cache))  # type: ignore[arg-type]
            taking_part = {k: how for k, how in field.items() if k != "floor" or name == "dqn"}
            figures = measure(taking_part, task, args.repeats, Path(cache))
            result[f"{name}, {threads} thread{'s' * (threads > 1)}"] = {"aim_times_sb3": aim, **figures}
    print(json.dumps({"benchmark": "offpolicy", "repeats": args.repeats, **result, "machine": machine("mujoco")}))


if __name__ == "__main__":
    main()
