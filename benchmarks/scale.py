"""How far runs and ranks scale: measured on this machine with 1, 2 and 4 processes, and a model up to 1,000.

    python benchmarks/scale.py [--steps 40960] [--repeats 3] [--ray]

Prints two tables and one JSON line, which is also stored in results/scale.json. Measured are: the rate of one worker
and of several at once (independent runs), what a run costs its coordinator, one exchange of gradients between two and
four ranks, and, with `--ray`, the start of a Ray head. docs/scale.md says what the model assumes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "scale.json"
MEASURED = (1, 2, 4)
WORKERS = (1, 2, 4, 8, 16, 64, 256, 1000)
SIZES = (1_000, 100_000, 1_000_000, 10_000_000)
RUN_MINUTES = 10.0
"""Length of a run in the model."""
UPDATE_MS = 50.0
"""One process's update in the model of ranks: an image encoder, a world model."""
LOOK = 0.5
"""Seconds between two looks of a coordinator."""


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40_960)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ray", action="store_true")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    rates = {count: workers(count, options.steps, options.repeats) for count in MEASURED}
    book = {trials: bookkeeping(trials) for trials in (50, 200)}
    exchange = {count: exchanges(count) for count in MEASURED[1:]}
    facts: dict[str, Any] = {
        "benchmark": "scale",
        "cores": cores,
        "load": os.getloadavg()[0],
        "workers": rates,
        "bookkeeping_ms_per_run": book,
        "exchange_ms": exchange,
        "ray_start_seconds": ray_start() if options.ray else None,
    }
    facts["model"] = {"runs": runs_model(facts, cores), "ranks": ranks_model(facts)}
    show(facts)
    text = json.dumps(facts)
    print(text)
    RESULTS.write_text(text + "\n")


# ---- independent runs --------------------------------------------------------------------------------


def workers(count: int, steps: int, repeats: int) -> dict[str, float]:
    """Steps per second of `count` runs at once, and the seconds in which they only start."""
    found = [_workers(count, steps) for _ in range(repeats)]
    print(f"{count} workers: {found}", file=sys.stderr)
    return {key: round(statistics.median(one[key] for one in found), 2) for key in found[0]}


def _workers(count: int, steps: int) -> dict[str, float]:
    words = ["CartPole-v1:ppo", f"training.total_timesteps={steps}", "training.evaluation.every_steps=null",
             "training.stop.eval_reward=null", "runtime.compile=never", "-q"]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ludus", "train", *words, "--seed", f"1..{count}", "--jobs", str(count)]
        begin = time.perf_counter()
        subprocess.run(
            [*command, "--runs-dir", folder],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", "LUDUS_QUIET": "1"},
        )
        wall = time.perf_counter() - begin
        ends = [json.loads(path.read_text())["seconds"] for path in Path(folder).glob("*/metrics.json")]
    return {"steps_per_second": count * steps / max(ends), "start_seconds": wall - max(ends)}


def bookkeeping(trials: int) -> float:
    """Milliseconds of processor time that a coordinator takes for one run, with four evaluations and as many looks."""
    sys.path.insert(0, str(ROOT / "tests"))
    from sweeps.toy import ToyEngine, spec_of, sweep

    with tempfile.TemporaryDirectory() as folder:
        spec = spec_of(f"algorithm.epochs=range(1,{trials + 1})", jobs=8)
        begin = time.process_time()
        sweep(Path(folder), spec, ToyEngine(lambda _: 1.0), size=8)
        return round(1000 * (time.process_time() - begin) / trials, 2)


def runs_model(facts: dict[str, Any], cores: int) -> dict[int, dict[str, float]]:
    """Steps per second of independent runs: a core each, up to what one coordinator can look after."""
    one, cost = facts["workers"][1], max(facts["bookkeeping_ms_per_run"].values()) / 1000
    looked_after = LOOK / (cost / 5)  # a run costs five looks: the start and four evaluations
    share = 60 * RUN_MINUTES / (60 * RUN_MINUTES + one["start_seconds"])
    table = {}
    for count in WORKERS:
        far = min(count, looked_after) * one["steps_per_second"] * share
        table[count] = {"own_cores": round(far)}
        if count in MEASURED:
            table[count]["this_machine"] = round(min(count, cores) * one["steps_per_second"])
            table[count]["measured"] = round(facts["workers"][count]["steps_per_second"])
    return table


# ---- ranks -------------------------------------------------------------------------------------------


def exchanges(count: int) -> dict[int, float]:
    """Milliseconds of one all-reduce between `count` ranks of this machine, the fastest of many, by parameters."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=other, args=(rank, count, store.port)) for rank in range(1, count)]
    for process in others:
        process.start()
    found = measure(0, count, store)
    for process in others:
        process.join()
    print(f"{count} ranks: {found}", file=sys.stderr)
    return found


def other(rank: int, count: int, port: int) -> None:
    """Another rank."""
    from torch.distributed import TCPStore

    measure(rank, count, TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False))


def measure(rank: int, count: int, store: Any) -> dict[int, float]:
    """The fastest exchange of each size."""
    import torch

    from ludus.learning.ranks import ConnectedRanks

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    ranks = ConnectedRanks(rank, count, store, timeout=300.0, local_rank=rank)
    ranks.join()
    found = {}
    for size in SIZES:
        gradient, passed = torch.ones(size), []
        for _ in range(40 if size <= 1_000_000 else 8):
            begin = time.perf_counter()
            ranks.average(gradient)
            passed.append(time.perf_counter() - begin)
        found[size] = round(1000 * min(passed), 3)
    ranks.leave()
    return found


def ring(alpha: float, beta: float, size: int, count: int) -> float:
    """Milliseconds of an all-reduce around a ring: 2 (n - 1) messages of 4 p / n bytes."""
    return 2 * (count - 1) * (alpha + beta * 4 * size / count)


def ranks_model(facts: dict[str, Any]) -> dict[str, Any]:
    """Speed-up of one training by ranks with a core each; latency and bandwidth are those of two ranks here."""
    two = facts["exchange_ms"][2]
    alpha = two[SIZES[0]] / 2
    beta = max(two[1_000_000] / 2 - alpha, 1e-9) / (2 * 1_000_000)  # ms for a byte; each message is half of them
    check = {size: {"model_ms": round(ring(alpha, beta, size, 4), 3), "measured_ms": facts["exchange_ms"][4][size]}
             for size in SIZES}  # fmt: skip
    table = {
        count: {
            str(size): round(UPDATE_MS / (UPDATE_MS / count + (ring(alpha, beta, size, count) if count > 1 else 0)), 2)
            for size in SIZES
        }
        for count in WORKERS
    }
    return {"latency_ms": round(alpha, 4), "ns_per_byte": round(beta * 1e6, 3), "four_ranks": check, "speed_up": table}


def ray_start() -> float:
    """Seconds until a Ray head of one node has begun."""
    import ray

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    begin = time.perf_counter()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    passed = time.perf_counter() - begin
    ray.shutdown()
    return round(passed, 1)


def show(facts: dict[str, Any]) -> None:
    """The tables, for people."""
    print("workers   steps/s, a core each   steps/s here: model   measured", file=sys.stderr)
    for count, row in facts["model"]["runs"].items():
        here, measured = row.get("this_machine", ""), row.get("measured", "")
        print(f"{count:>7}   {row['own_cores']:>20,}   {here:>20}   {measured:>8}", file=sys.stderr)
    print(f"\nranks     speed-up of updates of {UPDATE_MS:g} ms, by parameters: {SIZES}", file=sys.stderr)
    for count, row in facts["model"]["ranks"]["speed_up"].items():
        print(f"{count:>7}   {'   '.join(f'{value:>7}' for value in row.values())}", file=sys.stderr)
    print(f"\nfour ranks, model against measured: {facts['model']['ranks']['four_ranks']}", file=sys.stderr)


if __name__ == "__main__":
    main()
