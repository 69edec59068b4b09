"""How long buffers take: adding, drawing 256 of a million steps, saving what is new.

A draw is the whole `sample(256)`: places, n-step returns, and every column gathered. Before each timed draw from
a prioritized buffer the last one's priorities change, as they do in training, so that no sum is still up to date.

python benchmarks/replay.py              prints one JSON line; times are in microseconds

Besides the median of every time there is its tenth percentile: what a call takes when nothing else wants the processor.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ludus.data.rollout import Ends, Rollout
from ludus.registry import BUFFERS
from ludus.types import Spaces

ENVS = 8
WIDTHS = {"4 floats, 2 actions": (4, 0), "17 floats, 6 actions": (17, 6)}
"""Observations of CartPole and of HalfCheetah; 0 is an action by number."""


def spaces_of(task: str) -> Spaces:
    """Spaces of one of WIDTHS."""
    width, actions = WIDTHS[task]
    action = gym.spaces.Box(-1, 1, (actions,)) if actions else gym.spaces.Discrete(2)
    return Spaces(gym.spaces.Box(-9, 9, (width,)), action)


def rollout(steps: int, start: int, task: str, rng: np.random.Generator) -> Rollout:
    """Steps of eight environments whose episodes end every thousand steps or so."""
    width, actions = WIDTHS[task]
    obs = rng.normal(size=(steps + 1, ENVS, width)).astype(np.float32)
    action = (
        rng.normal(size=(steps, ENVS, actions)).astype(np.float32) if actions else rng.integers(2, size=(steps, ENVS))
    )
    reward = rng.random((steps, ENVS), np.float32)
    done = rng.random((steps, ENVS)) < 0.001
    first = np.concatenate([np.full((1, ENVS), start == 0), done])
    t, b = np.nonzero(done)
    ends = Ends(t=t, b=b, obs=obs[t, b], raw_obs=obs[t, b], state=(), bootstrap=np.zeros(len(t), bool))
    return Rollout(obs=obs, action=action, reward=reward, terminated=done, truncated=np.zeros_like(done), first=first,
                   state=(), last_state=(), ends=ends if len(t) else None, raw_obs=obs, raw_reward=reward,
                   start=start)  # fmt: skip


def microseconds(call: Callable[[], Any], repeats: int, before: Callable[[], Any] = lambda: None) -> dict[str, float]:
    """Times of a call; what comes before it is not counted."""
    times = []
    for _ in range(repeats):
        before()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    times.sort()
    return {"median": round(1e6 * statistics.median(times), 1), "tenth": round(1e6 * times[len(times) // 10], 1)}


def measure(kind: str, task: str, size: int, batch: int, repeats: int) -> dict[str, dict[str, float]]:
    """A full buffer of one kind."""
    rng = np.random.default_rng(0)
    cls = BUFFERS[kind]
    buffer = cls(cls.Config(size=size), spaces_of(task), ENVS, name="replay", rng=rng)
    start, part = 0, 2_000
    while start * ENVS < 1.1 * size:
        buffer.add(rollout(part, start, task, rng))
        start += part

    def learn() -> None:
        buffer.update_priorities(index, rng.random(batch))

    def draw(n_step: int) -> None:
        index[:] = buffer.sample(batch, n_step=n_step)["index"]

    index = buffer.sample(batch)["index"].copy()
    found = {f"draw_{n}_step": microseconds(partial(draw, n), repeats, learn) for n in (1, 3)}
    if kind == "prioritized":
        found["draw_places_only"] = microseconds(lambda: buffer._draw(batch, 1, 1), repeats, learn)
        found["update_priorities"] = microseconds(learn, repeats)
    found["draw_sequences_32x20"] = microseconds(lambda: buffer.sample_sequences(32, 20), repeats)
    steps = iter([rollout(1, start + i, task, rng) for i in range(repeats)])
    found["add_one_vector_step"] = microseconds(lambda: buffer.add(next(steps)), repeats)
    with tempfile.TemporaryDirectory() as folder:
        buffer.attach(Path(folder))
        found["save_everything"] = microseconds(lambda: buffer.save("step=1", ()), 1)
        buffer.add(rollout(100, start + repeats, task, rng))
        found["save_800_new_steps"] = microseconds(lambda: buffer.save("step=2", ("step=1",)), 1)
    return found


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000_000, help="steps in the buffer")
    parser.add_argument("--batch", type=int, default=256, help="steps drawn at once")
    parser.add_argument("--repeats", type=int, default=300, help="calls timed")
    args = parser.parse_args()
    found = {
        task: {kind: measure(kind, task, args.size, args.batch, args.repeats) for kind in ("uniform", "prioritized")}
        for task in WIDTHS
    }
    aim = {"aim_prioritized_draw_1_step": 200}
    print(json.dumps({"benchmark": "replay", "size": args.size, "batch": args.batch, "unit": "us", **aim, **found}))


if __name__ == "__main__":
    main()
