"""Diffusion policy: one decision of DDIM-10, Ludus beside a plain loop over the same network, taking turns.

python benchmarks/diffusion.py                     1.2M and 4.2M parameters, 1 and 50 environments; one thread
python benchmarks/diffusion.py --widths 32 64 128  prints one JSON line, progress to stderr

The plain loop asks the whole network at every step; Ludus keeps what depends on time or observations alone and
computes few samples in numpy. Milliseconds are processor time; `times_plain` is the median of the ratios within
each repeat. A decision is for `action_horizon` = 8 steps of the environment.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import gymnasium as gym
import numpy as np
import torch
from match import note

from ludus.config.schema import ExperimentConfig
from ludus.math.diffusion import ddim_step, descent, squared_cosine
from ludus.session.player import build_player
from ludus.types import Spaces

OBSERVATION, ACTION = 20, 2
AIMS = {1: 25.0, 50: 4.0}
"""Environments -> milliseconds for each of them, of the network with 1.2M parameters."""


def policy(widths: list[int]) -> Any:
    """A policy that was never trained."""
    spaces = Spaces(gym.spaces.Box(-1, 1, (OBSERVATION,), np.float32), gym.spaces.Box(-1, 1, (ACTION,), np.float32))
    algorithm = {"name": "diffusion_policy", "denoiser": {"widths": widths}}
    config = ExperimentConfig.model_validate({"algorithm": algorithm, "training": {"total_updates": 1}})
    return build_player(config, spaces, None).algorithm


def calls(one: Any, batch: int) -> dict[str, Callable[[], Any]]:
    """One decision for `batch` environments, by the plain loop and as it is played."""
    net, plan = one.averaged, descent(squared_cosine(100), 10)
    seen, obs = torch.randn(batch, 2, OBSERVATION), np.random.default_rng(0).random((batch, OBSERVATION), np.float32)
    state, first = one.initial_state(batch), np.ones(batch, bool)

    @torch.no_grad()
    def plain() -> None:
        x = torch.randn(batch, 16, ACTION)
        for at, signal, after in zip(*plan, strict=True):
            x = ddim_step(x, net(x, net.time(at.expand(batch)), net.seen(seen)), signal, after)

    return {"plain": plain, "ludus": lambda: one.act(obs, state, first, deterministic=False)}


def measured(contestants: dict[str, Callable[[], Any]], repeats: int) -> dict[str, Any]:
    """Medians, least times, and how many times as fast as the plain loop."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 2):
        for name, call in contestants.items():
            start = time.process_time()
            call()
            if repeat > 1:
                found[name].append(1e3 * (time.process_time() - start))
    rows: dict[str, Any] = {
        name: {"ms": round(statistics.median(times), 2), "least_ms": round(min(times), 2)}
        for name, times in found.items()
    }
    pairs = zip(found["plain"], found["ludus"], strict=True)
    rows["ludus"]["times_plain"] = round(statistics.median(a / b for a, b in pairs), 2)
    return rows


def main() -> None:
    """Measure; one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", nargs="+", type=int, action="append", help="of one network; may be given again")
    parser.add_argument("--repeats", type=int, default=30)
    args = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    result: dict[str, Any] = {"benchmark": "diffusion", "aims": AIMS}
    for widths in args.widths or ([32, 64, 128], [64, 128, 256]):
        one = policy(widths)
        size = sum(parameter.numel() for parameter in one.averaged.parameters())
        rows = {f"{batch} environments": measured(calls(one, batch), args.repeats) for batch in AIMS}
        result["-".join(map(str, widths))] = {"parameters": size, **rows}
        note(f"{widths}: {json.dumps(rows)}")
    facts = {"torch": torch.__version__, "numpy": np.__version__, "load": round(os.getloadavg()[0], 2)}
    print(json.dumps({**result, "machine": facts}))


if __name__ == "__main__":
    main()
