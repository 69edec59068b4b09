"""What it costs two ranks on this machine to exchange gradients, by the number of parameters.

    python benchmarks/ranks.py [--repeats 50]

One JSON line: for each size the time of one all-reduce of that many float32 over gloo, as milliseconds that passed (the
fastest and the median one) and as processor time of one rank; beside it the time in which this process alone copies as
many numbers. An idle machine with two cores gives the fastest; the median tells how busy it was.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from typing import Any

import torch

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=50)
    repeats = parser.parse_args().repeats
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    other = multiprocessing.get_context("spawn").Process(target=second, args=(store.port, repeats))
    other.start()
    found = measure(0, store, repeats)
    other.join()
    print(json.dumps({"benchmark": "ranks", "torch": torch.__version__, "sizes": found}))


def second(port: int, repeats: int) -> None:
    """The other rank."""
    from torch.distributed import TCPStore

    measure(1, TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False), repeats)


def measure(rank: int, store: Any, repeats: int) -> dict[str, dict[str, float]]:
    """Times in milliseconds for every size."""
    from ludus.learning.ranks import ConnectedRanks

    torch.set_num_threads(1)
    ranks = ConnectedRanks(rank, 2, store, timeout=300.0, local_rank=rank)
    ranks.join()
    found = {}
    for size in SIZES:
        gradient, copy = torch.ones(size), torch.zeros(size)
        count = max(5, repeats if size <= 1_000_000 else repeats // 5)
        ranks.average(gradient)
        passed, start = [], time.process_time()
        for _ in range(count):
            begin = time.perf_counter()
            ranks.average(gradient)
            passed.append(time.perf_counter() - begin)
        used, start = (time.process_time() - start) / count, time.process_time()
        for _ in range(count):
            copy.copy_(gradient)
        copied = (time.process_time() - start) / count
        found[f"{size:,}"] = {
            "fastest_ms": round(1000 * min(passed), 3),
            "median_ms": round(1000 * statistics.median(passed), 3),
            "processor_ms": round(1000 * used, 3),
            "copy_ms": round(1000 * copied, 3),
        }
    ranks.leave()
    return found


if __name__ == "__main__":
    main()
