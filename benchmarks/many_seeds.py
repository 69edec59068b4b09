"""Several seeds at once against one after the other: wall time, and whether the results are the same to the bit.

    python benchmarks/many_seeds.py [--seeds 4] [--jobs 2] [--steps 102400] [--repeats 3]

One JSON line, which is also stored in results/many_seeds.json: seconds of `ludus train CartPole-v1:ppo --seed 1..4` one
after the other and with `--jobs 2`, in turn, and the median of the ratios within each repeat. Two free cores should
give at most 0.6. Exit code 1 if a final state differs.
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
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "many_seeds.json"
SPEC = ["CartPole-v1:ppo", "training.stop.eval_reward=null", "-q"]


def main() -> int:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=102_400)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows, same = [], True
    for repeat in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            ways = [("in_turn", []), ("at_once", ["--jobs", str(options.jobs)])]
            order = reversed(ways) if repeat % 2 else ways
            row = {name: train(root / name, options.seeds, options.steps, words) for name, words in order}
            same = same and marks(root / "in_turn") == marks(root / "at_once")
        rows.append(row)
        print(f"repeat {repeat + 1}: {row}", file=sys.stderr)
    ratios = [row["at_once"] / row["in_turn"] for row in rows]
    line = {
        "benchmark": "many_seeds", "seeds": options.seeds, "jobs": options.jobs, "steps": options.steps,
        "seconds": rows, "ratio": round(statistics.median(ratios), 3), "identical": same,
        "cores": os.cpu_count(), "load": os.getloadavg()[0],
    }  # fmt: skip
    text = json.dumps(line)
    print(text)
    RESULTS.write_text(text + "\n")
    return 0 if same else 1


def train(runs_dir: Path, seeds: int, steps: int, words: list[str]) -> float:
    """Seconds of one command."""
    command = [sys.executable, "-m", "ludus", "train", *SPEC, f"training.total_timesteps={steps}"]
    begin = time.perf_counter()
    subprocess.run(
        [*command, "--seed", f"1..{seeds}", "--runs-dir", str(runs_dir), *words],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "LUDUS_QUIET": "1"},
    )
    return round(time.perf_counter() - begin, 2)


def marks(runs_dir: Path) -> dict[int, str]:
    """Seed -> fingerprint of the final state."""
    from ludus.archive import checkpoint
    from ludus.archive.fingerprint import fingerprint
    from ludus.archive.index import Index

    return {
        record.seed: fingerprint(checkpoint.load(checkpoint.find(record.folder, "last")))
        for record in Index(runs_dir).records()
        if record.seed is not None
    }


if __name__ == "__main__":
    sys.exit(main())
