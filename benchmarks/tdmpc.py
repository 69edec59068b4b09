"""TD-MPC2: one update and one planned action, Ludus beside a plain loop over the published equations, taking turns.

python benchmarks/tdmpc.py                             tiny and 1m, eager and compiled; one thread
python benchmarks/tdmpc.py --sizes tiny --repeats 30   prints one JSON line, progress to stderr

`floor` is the matrix products of our own eager call, repeated with nothing around them: it learns and plans nothing.
Walker-like observations (24) and actions (6) without ends; batches are given, environments not stepped.
Milliseconds are processor time; `times_plain` is the median of the ratios within each repeat.
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
from match import machine, note
from products import floor_of
from tdmpc_plain import PlainTDMPC2, Widths

from ludus.config.schema import ExperimentConfig
from ludus.experiment import build

OBSERVATION, ACTION, GAMMA = 24, 6, 0.99
SETTINGS: dict[str, dict[str, int]] = {
    "tiny": {"batch_size": 128, "candidates": 128, "policy_candidates": 8, "rounds": 4, "elites": 16},
    "1m": {"batch_size": 256, "candidates": 512, "policy_candidates": 24, "rounds": 6, "elites": 64},
}
"""Batches and plans that the sizes were measured with."""
AIMS = {"tiny": 2.5, "1m": 1.5}


class Noise(gym.Env):
    """Random numbers."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (ACTION,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """A first observation."""
        super().reset(seed=seed)
        return self.np_random.standard_normal(OBSERVATION, np.float32), {}

    def step(self, action: Any) -> Any:
        """The next one."""
        return self.np_random.standard_normal(OBSERVATION, np.float32), float(action.sum()), False, False, {}


def ours(size: str, compiled: bool) -> tuple[Callable[[], Any], Callable[[], Any], Any]:
    """(update, act) of a run with a filled buffer, and its config."""
    algorithm = {"name": "tdmpc", "size": size, "episodic": False, "gamma": GAMMA, **SETTINGS[size]}
    run = build(
        ExperimentConfig.model_validate(
            {
                "environment": {"id": "Noise-v0", "num_envs": 1, "max_episode_steps": 500},
                "algorithm": {**algorithm, "learning_starts": 1_000, "train_freq": 1_000},
                "training": {"total_timesteps": 100_000},
                "runtime": {"compile": "always" if compiled else "never", "threads": 1},
            }
        )
    )
    from ludus.algorithms import PhaseContext

    cfg = run.config.algorithm.config
    now = PhaseContext(cfg=cfg, name="", type="online", position=0, total=100_000, remaining_steps=100_000)
    run.algorithm.collect(now)  # type: ignore[attr-defined]
    assert run.collector is not None
    state, first = run.algorithm.initial_state(1), np.zeros(1, bool)
    obs = np.zeros((1, OBSERVATION), np.float32)

    def act() -> None:
        run.algorithm.behaviour.uniform = False
        run.algorithm.behaviour.act(obs, state, first)

    return lambda: run.algorithm.update(now), act, cfg  # type: ignore[attr-defined]


def theirs(cfg: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """(update, act) of the plain loop with the same widths."""
    given = {name: getattr(cfg, name) for name in ("latent", "units", "critics", "candidates", "rounds", "elites")}
    widths = Widths(OBSERVATION, ACTION, encoder=cfg.encoder_units, policy=cfg.policy_candidates, **given)
    plain, batch, horizon = PlainTDMPC2(widths, GAMMA), cfg.batch_size, cfg.horizon
    obs, action = torch.randn(horizon + 1, batch, OBSERVATION), torch.rand(horizon, batch, ACTION) * 2 - 1
    reward, ends, one = torch.randn(horizon, batch, 1), torch.zeros(horizon, batch, 1), torch.randn(1, OBSERVATION)
    return lambda: plain.update(obs, action, reward, ends), lambda: plain.plan(one)


def milliseconds(call: Callable[[], Any]) -> float:
    """Processor time of one call: a busy machine changes it less than the time on the wall."""
    start = time.process_time()
    call()
    return 1e3 * (time.process_time() - start)


def measured(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, Any]:
    """Medians, and how many times as fast as the plain loop."""
    for call in calls.values():
        call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            found[name].append(milliseconds(call))
    rows: dict[str, Any] = {name: {"ms": round(statistics.median(times), 2)} for name, times in found.items()}
    for name in found:
        if name != "plain":
            pairs = zip(found["plain"], found[name], strict=True)
            rows[name]["times_plain"] = round(statistics.median(a / b for a, b in pairs), 2)
    return rows


def main() -> None:
    """Measure; one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--eager-only", action="store_true", help="compile nothing")
    args = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    gym.register("Noise-v0", Noise)
    result: dict[str, Any] = {"benchmark": "tdmpc", "aims": AIMS}
    for size in args.sizes:
        update, act, cfg = ours(size, compiled=False)
        plain_update, plain_act = theirs(cfg)
        updates, acts = {"plain": plain_update, "ludus_eager": update}, {"plain": plain_act, "ludus_eager": act}
        if not args.eager_only:
            updates["ludus_compiled"], acts["ludus_compiled"], _ = ours(size, compiled=True)
        updates["floor"], acts["floor"] = floor_of(update), floor_of(act)
        result[size] = {"update": measured(updates, args.repeats), "act": measured(acts, args.repeats)}
        note(f"{size}: {json.dumps(result[size])}")
    print(json.dumps({**result, "machine": machine()}))


if __name__ == "__main__":
    main()
