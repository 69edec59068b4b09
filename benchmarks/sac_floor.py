"""How much of a compiled SAC update is matrix products: the update against its bare products, taking turns.

python benchmarks/sac_floor.py                       prints one JSON line; one thread
python benchmarks/sac_floor.py --threads 2

The products of one update (256 x 256 networks, HalfCheetah, batch 256) are listed below and run one after the other
into memory of their own. Nothing in float32 is faster than they are; `products_share` says how near the update is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import torch
from match import machine
from off_policy_ludus import overrides
from off_policy_task import TASKS

from ludus.config.compose import load
from ludus.experiment import build

B, S, A, H = 256, 17, 6, 256
"""Batch, observation, action, hidden."""
FORWARD = [(2, B, S + A, H), (2, B, H, H)]
ACTOR = [(1, B, S, H), (1, B, H, H), (1, B, H, 2 * A)]
PRODUCTS = {
    "target critics, critics, critics of the policy's actions": 3 * FORWARD,
    "the policy's actions now and next": 2 * ACTOR,
    "gradient of the critics": [(2, H, B, H), (2, S + A, B, H), (2, B, H, H)],
    "gradient of the policy through them": [(2, B, H, H), (2, B, H, S + A)],
    "gradient of the policy": [(1, H, B, H), (1, S, B, H), (1, H, B, 2 * A), (1, B, H, H), (1, B, 2 * A, H)],
}
"""(how many at once, rows, summed over, columns); the one column that values have is not computed as a product."""


def product(n: int, rows: int, inner: int, columns: int) -> Callable[[], object]:
    """One batched product, ready to be called."""
    left, right, out = torch.randn(n, rows, inner), torch.randn(n, inner, columns), torch.empty(n, rows, columns)
    return lambda: torch.bmm(left, right, out=out)


def milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=200, help="turns of each")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    task = replace(TASKS["sac"], total=TASKS["sac"].learning_starts + 50, threads=args.threads)
    run = build(load("HalfCheetah-v5:sac", [*overrides(task), "runtime.compile=always"]).config)
    run.run()
    algorithm: Any = run.algorithm
    learner, static = algorithm.learner, {"learn_alpha": True, "burn_in": run.config.algorithm.config.burn_in}
    batch, numbers = dict(learner.batch), dict(learner.scalars)
    shapes = [shape for part in PRODUCTS.values() for shape in part]
    products = [product(*shape) for shape in shapes]
    mflop = sum(2 * n * rows * inner * columns for n, rows, inner, columns in shapes) / 1e6
    update, bare = [], []
    for _ in range(args.repeats):
        update.append(milliseconds(lambda: learner.update(algorithm.update, batch, numbers, **static)))
        bare.append(milliseconds(lambda: [call() for call in products]))
    quick = args.repeats // 4  # the quarter with least disturbance
    ours, theirs = sorted(update)[quick], sorted(bare)[quick]
    found = {"mflop": round(mflop), "update_ms": round(ours, 2), "products_ms": round(theirs, 2)}
    rate = {"products_gflop_per_s": round(mflop / theirs, 1), "products_share": round(theirs / ours, 3)}
    print(
        json.dumps({"benchmark": "sac_floor", "threads": args.threads, **found, **rate, "machine": machine("mujoco")})
    )


if __name__ == "__main__":
    main()
