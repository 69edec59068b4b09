"""PPO on ALE/Pong-v5: Ludus against Stable-Baselines3 and a CleanRL-shaped EnvPool loop, side by side on two threads.

python benchmarks/ppo_atari.py                                   training steps per second
python benchmarks/ppo_atari.py --learning-curve --parts FILE     mean return over the first 200,000 steps

Each training of the curves is appended to FILE when it ends; those already there are not run again, so that an
interrupted comparison goes on where it stopped.
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

from match import Contestant, interleave, machine, note, rates, ratio, run
from task import ATARI, Task

FIELD: dict[str, Contestant] = {
    "sb3_sync": ("sb3.py",),
    "sb3_subproc": ("sb3.py", "subproc"),
    "cleanrl_envpool": ("cleanrl_shaped.py",),
    "ludus": ("ludus_run.py", "runtime.precision=float32"),
    "ludus_auto": ("ludus_run.py", "runtime.precision=auto"),
    "floor": ("floor.py",),
}
"""`ludus_auto` takes part where the processor multiplies bfloat16; elsewhere it is `ludus`."""
AIMS = {"sb3_sync": 2.5, "sb3_subproc": 2.5, "cleanrl_envpool": 1.8}
CURVE_STEPS = 200_000


def speed(field: dict[str, Contestant], task: Task, repeats: int, cache: Path) -> dict[str, Any]:
    """Prints a line per contestant; ratios of ours to the others'."""
    got = rates(field, task, repeats, cache, "Pong")
    for name, values in got.items():
        every = [round(value) for value in values]
        print(json.dumps({"contestant": name, "steps_per_second": round(statistics.median(values)), "each": every}))
    ours = [name for name in got if name.startswith("ludus") or name == "floor"]
    return {
        f"{mine}_times_{other}": ratio(got, mine, other)
        for mine in ours
        for other in got
        if not other.startswith("ludus") and other != mine
    }


def curves(field: dict[str, Contestant], task: Task, repeats: int, cache: Path, parts: Path) -> dict[str, Any]:
    """Prints a line per contestant: the mean return at the end, and over the second half of the curve."""
    done = {(part["contestant"], part["seed"], part["steps"]): part for part in read(parts)}

    def measure(name: str, repeat: int) -> None:
        key = (name, repeat + 1, task.total)
        if key in done:
            return
        got = run(field[name], replace(task, seed=repeat + 1, curve=True), cache)
        done[key] = {"contestant": name, "seed": repeat + 1, "steps": task.total, **got}
        with parts.open("a") as file:
            file.write(json.dumps(done[key]) + "\n")
        note(f"{name} seed {repeat + 1}: {got['curve'][-1][1]:.1f} after {got['seconds']:.0f} s")

    interleave(field, repeats, measure)
    summary = {}
    for name in field:
        mine = [part["curve"] for part in done.values() if part["contestant"] == name and part["steps"] == task.total]
        late = [[value for steps, value in curve if steps >= task.total / 2] for curve in mine]
        summary[name] = {
            "last": round(statistics.mean(curve[-1][1] for curve in mine), 2),
            "second_half": round(statistics.mean(statistics.mean(values) for values in late if values), 2),
        }
        print(json.dumps({"contestant": name, "seeds": len(mine), **summary[name], "curves": mine}))
    return summary


def read(parts: Path) -> list[dict[str, Any]]:
    """Trainings finished by earlier calls."""
    return [json.loads(line) for line in parts.read_text().splitlines()] if parts.exists() else []


def main() -> None:
    """Measure; one JSON line per contestant, then a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learning-curve", action="store_true", help="returns instead of steps per second")
    parser.add_argument("--parts", type=Path, default=Path("ppo_atari_curves.jsonl"), help="where finished curves go")
    parser.add_argument("--steps", type=int, help=f"environment steps ({ATARI.total}, or {CURVE_STEPS} for the curves)")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each contestant (seeds 1, 2, ...)")
    parser.add_argument("--only", nargs="+", choices=FIELD, help="these contestants")
    parser.add_argument("--threads", type=int, default=ATARI.threads, help="of each contestant")
    args = parser.parse_args()
    field = {name: FIELD[name] for name in args.only or FIELD}
    if not args.only and not has_bfloat16():
        del field["ludus_auto"]
    if args.learning_curve:
        field.pop("floor", None)  # it learns nothing
    steps = args.steps or (CURVE_STEPS if args.learning_curve else ATARI.total)
    task = replace(ATARI, total=steps, threads=args.threads)
    with tempfile.TemporaryDirectory() as cache:
        if args.learning_curve:
            result = curves(field, task, args.repeats, Path(cache), args.parts)
        else:
            result = speed(field, task, args.repeats, Path(cache))
    facts = {"steps": task.total, "threads": task.threads, "repeats": args.repeats, "bfloat16": has_bfloat16()}
    mode = "learning_curve" if args.learning_curve else "speed"
    head = {"benchmark": "ppo_atari", "mode": mode}
    print(json.dumps({**head, **result, "aims": AIMS, **facts, "machine": machine("ale-py", "envpool")}))


def has_bfloat16() -> bool:
    """Asked of the library itself, which decides the same way when it trains."""
    from ludus.networks.precision import has_bfloat16

    return has_bfloat16()


if __name__ == "__main__":
    main()
