"""PPO on CartPole-v1: Ludus against Stable-Baselines3 and a CleanRL-shaped loop, side by side in one run.

python benchmarks/ppo_cartpole.py                    training steps per second in two settings
python benchmarks/ppo_cartpole.py --time-to-solve    seconds from command to an evaluated mean of 475
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from match import Contestant, interleave, machine, note, rates, ratio, run
from task import SOLVE, SPEED

SPEED_FIELD: dict[str, Contestant] = {
    "sb3": ("sb3.py",),
    "cleanrl_shaped": ("cleanrl_shaped.py",),
    "ludus_eager": ("ludus_run.py", "runtime.compile=never"),
    "ludus_compiled": ("ludus_run.py", "runtime.compile=always"),
    "floor": ("floor.py",),
}
SOLVE_FIELD: dict[str, Contestant] = {
    "sb3": ("sb3.py",),
    "cleanrl_shaped": ("cleanrl_shaped.py",),
    "ludus": ("ludus_run.py",),
}


def speed(field: dict[str, Contestant], repeats: int, cache: Path) -> dict[str, object]:
    """Median training steps per second and the ratio to Stable-Baselines3, per setting."""
    result: dict[str, object] = {}
    for setting, task in SPEED.items():
        if "ludus_compiled" in field:  # building the package is not training speed
            run(field["ludus_compiled"], task, cache)
        got = rates(field, task, repeats, cache, setting)
        result[setting] = {
            name: {
                "steps_per_second": round(statistics.median(values)),
                "times_sb3": ratio(got, name, "sb3"),
            }
            for name, values in got.items()
        }
    return result


def time_to_solve(field: dict[str, Contestant], repeats: int, cache: Path) -> dict[str, object]:
    """Seconds from starting the command to its end at an evaluated mean >= 475, one seed per repeat."""
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in field}

    def measure(name: str, repeat: int) -> None:
        got = run(field[name], SOLVE.with_seed(repeat + 1), cache)
        answers[name].append(got)
        note(f"seed {repeat + 1} {name}: {got['seconds']:.1f} s, {got['env_steps']} steps, mean {got['eval_mean']:.0f}")

    interleave(field, repeats, measure)
    return {
        name: {
            "solved": sum(bool(got["solved"]) for got in got_all),
            "seconds_median": round(statistics.median(got["seconds"] for got in got_all), 2),
            "seconds": [round(got["seconds"], 2) for got in got_all],
            "env_steps": [got["env_steps"] for got in got_all],
        }
        for name, got_all in answers.items()
    }


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-to-solve", action="store_true", help="wall time instead of steps per second")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each contestant (seeds 1, 2, ...)")
    parser.add_argument("--only", nargs="+", help="these contestants; sb3 is always among them")
    args = parser.parse_args()
    field = SOLVE_FIELD if args.time_to_solve else SPEED_FIELD
    if args.only:
        field = {name: how for name, how in field.items() if name in {"sb3", *args.only}}
    with tempfile.TemporaryDirectory() as cache:
        result = (time_to_solve if args.time_to_solve else speed)(field, args.repeats, Path(cache))
    mode = "time_to_solve" if args.time_to_solve else "speed"
    head = {"benchmark": "ppo_cartpole", "mode": mode, "repeats": args.repeats}
    print(json.dumps({**head, **result, "machine": machine()}))


if __name__ == "__main__":
    main()
