"""Did a change cost speed? Trains with the code of another checkout and of this one in turn, one thread each.

python benchmarks/two_checkouts.py ../old                            every case; one JSON line each
python benchmarks/two_checkouts.py ../old --only "ppo A" --repeats 9
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from match import interleave, note, steadiness
from off_policy_task import TASKS
from task import MUJOCO, SPEED, Task

HERE = Path(__file__).resolve().parents[1]
LSTM = Task(envs=8, rollout_steps=128, epochs=4, batch=512, total=1024 * 40)
LUDUS = "ludus_run.py"
CASES: dict[str, tuple[str, str]] = {
    "ppo A": (LUDUS, SPEED["A"].to_json()),
    "ppo B": (LUDUS, SPEED["B"].to_json()),
    "ppo mujoco": (LUDUS, MUJOCO.to_json()),
    "ppo lstm": ("memory_ludus.py", LSTM.to_json()),
    "sac": ("off_policy_ludus.py", TASKS["sac"].to_json()),
    "dqn": ("off_policy_ludus.py", TASKS["dqn"].to_json()),
}
"""Tasks of the other benchmarks, and the script in `peers/` that trains Ludus on them."""


def speed(checkout: Path, script: str, task: str, compiled: bool, cache: Path) -> float:
    """Training steps per second of one process that imports Ludus from this checkout."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "LUDUS_CACHE": str(cache),
        "PYTHONPATH": str(checkout / "src"),
    }
    mode = f"runtime.compile={'always' if compiled else 'never'}"
    command = [sys.executable, str(checkout / "benchmarks/peers" / script), task, mode]
    found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return float(json.loads(found.stdout.splitlines()[-1])["steps_per_second"])


def compare(case: str, old: Path, compiled: bool, repeats: int, scratch: Path) -> dict[str, object]:
    """The new speed over the old one: the median of the ratios within each repeat, and each of them."""
    script, text = CASES[case]
    checkouts = {"old": old, "new": HERE}
    rates: dict[str, list[float]] = {name: [] for name in checkouts}
    caches = {name: scratch / name / case.replace(" ", "-") for name in checkouts}

    def measure(name: str, repeat: int) -> None:
        task = json.dumps({**json.loads(text), "seed": repeat + 1})
        rates[name].append(speed(checkouts[name], script, task, compiled, caches[name]))
        note(f"{case} {'compiled' if compiled else 'eager'} {repeat + 1}/{repeats} {name}: {rates[name][-1]:,.0f}")

    if compiled:  # building the code is not training speed
        for name in checkouts:
            speed(checkouts[name], script, text, compiled, caches[name])
    interleave(checkouts, repeats, measure)
    ratios = [new / before for new, before in zip(rates["new"], rates["old"], strict=True)]
    medians = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    each, median = [round(one, 3) for one in ratios], round(statistics.median(ratios), 3)
    return {
        "case": case,
        "compiled": compiled,
        "new_over_old": median,
        "each": each,
        **medians,
        **steadiness(),
    }


def main() -> None:
    """All cases, eager and compiled, or those that --only names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="these cases")
    parser.add_argument("--modes", nargs="+", choices=("eager", "compiled"), default=["eager", "compiled"])
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each checkout (seeds 1, 2, ...)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for case in args.only:
            for mode in args.modes:
                if (case, mode) != ("ppo lstm", "compiled"):  # `memory.py --peers` trains it as `auto` decides: eager
                    found = compare(case, args.old.resolve(), mode == "compiled", args.repeats, Path(scratch))
                    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
