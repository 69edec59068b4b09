"""Does a long run keep its memory? A tiny Dreamer over many steps, with a bounded buffer in memory and on disk.

python benchmarks/flat_memory.py                          100,000 steps each; one JSON line each, a minute or two
python benchmarks/flat_memory.py --steps 20000 --storage disk
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ludus.metrics.sinks.jsonl import read_rows

TINY = (
    "algorithm.size=tiny",
    "algorithm.batch_size=4",
    "algorithm.sequence_length=8",
    "algorithm.train_ratio=0.2",  # an update for every 160 steps: it is the buffer and the loop that are watched
    "algorithm.learning_starts=1000",
    "environment.num_envs=8",
    "training.evaluation.every_steps=null",
    "training.stop.eval_reward=null",
    "training.checkpoints.every_steps=20000",
    "runtime.compile=never",
    "-q",
)
RSS, SHOWN = "train/system/rss_mb", 10


def measure(steps: int, size: int, storage: str) -> dict[str, object]:
    """Resident megabytes along one run; `growth_mb` is from the first reading after the buffer is full to the last."""
    bounds = (f"training.total_timesteps={steps}", f"buffers.replay.size={size}", f"buffers.replay.storage={storage}")
    command = [sys.executable, "-m", "ludus", "train", "CartPole-v1:dreamer", *TINY, *bounds]
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds, path = time.monotonic() - start, (Path(folder) / "runs" / "@last").resolve()
        rows = [(int(row["env_steps"]), float(row[RSS])) for row in read_rows(path / "metrics.jsonl") if RSS in row]
    full = [(at, megabytes) for at, megabytes in rows if at >= 2 * size]
    shown = [full[round(i * (len(full) - 1) / SHOWN)] for i in range(SHOWN + 1)]
    found = {"storage": storage, "steps": steps, "buffer": size, "rss_mb": {at: round(mb, 1) for at, mb in shown}}
    return {**found, "growth_mb": round(full[-1][1] - full[0][1], 1), "seconds": round(seconds, 1)}


def main() -> None:
    """Both storages, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=5_000, help="steps that the buffer keeps")
    parser.add_argument("--storage", nargs="+", choices=("ram", "disk"), default=["ram", "disk"])
    options = parser.parse_args()
    for storage in options.storage:
        print(json.dumps(measure(options.steps, options.size, storage)), flush=True)


if __name__ == "__main__":
    main()
