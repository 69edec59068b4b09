"""PPO on HalfCheetah-v5 with eight environments: Ludus against Stable-Baselines3, side by side, one thread each.

python benchmarks/ppo_mujoco.py                      training steps per second
python benchmarks/ppo_mujoco.py --repeats 3 --steps 40960
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from match import Contestant, machine, rates, ratio, run
from task import MUJOCO

FIELD: dict[str, Contestant] = {
    "sb3": ("sb3.py",),
    "ludus_eager": ("ludus_run.py", "runtime.compile=never"),
    "ludus_compiled": ("ludus_run.py", "runtime.compile=always"),
    "floor": ("floor.py",),
}
AIM = 3.5


def main() -> None:
    """Measure; one JSON line per contestant, then a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=MUJOCO.total, help="environment steps of each measurement")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each contestant (seeds 1, 2, ...)")
    parser.add_argument("--only", nargs="+", help="these contestants; sb3 is always among them")
    args = parser.parse_args()
    task = replace(MUJOCO, total=args.steps)
    field = {name: how for name, how in FIELD.items() if not args.only or name in {"sb3", *args.only}}
    with tempfile.TemporaryDirectory() as cache:
        if "ludus_compiled" in field:  # building the package is not training speed
            run(field["ludus_compiled"], replace(task, total=3 * task.envs * task.rollout_steps), Path(cache))
        got = rates(field, task, args.repeats, Path(cache), "HalfCheetah")
    for name, values in got.items():
        every = [round(value) for value in values]
        print(json.dumps({"contestant": name, "steps_per_second": round(statistics.median(values)), "each": every}))
    summary = {f"{name}_times_sb3": ratio(got, name, "sb3") for name in got if name != "sb3"}
    facts = {"steps": args.steps, "repeats": args.repeats, "aim_times_sb3": AIM, "machine": machine("mujoco")}
    print(json.dumps({"benchmark": "ppo_mujoco", **summary, **facts}))


if __name__ == "__main__":
    main()
