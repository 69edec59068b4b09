"""How long buffers take: adding, drawing 256 of a million steps, saving what is new.

python benchmarks/replay.py              prints one JSON line; times are medians in microseconds
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ludus.data.rollout import Raw, Rollout
from ludus.registry import BUFFERS
from ludus.types import Spaces

ENVS, WIDTH = 8, 17


def rollout(steps: int, start: int, rng: np.random.Generator) -> Rollout:
    """Steps of eight environments whose episodes end every thousand steps or so."""
    obs = rng.normal(size=(steps + 1, ENVS, WIDTH)).astype(np.float32)
    action, reward = rng.normal(size=(steps, ENVS, 6)).astype(np.float32), rng.random((steps, ENVS), np.float32)
    done = rng.random((steps, ENVS)) < 0.001
    first = np.concatenate([np.full((1, ENVS), start == 0), done])
    t, b = np.nonzero(done)
    raw = Raw(obs=obs, reward=reward, t=t, b=b, final_obs=obs[t, b], start=start)
    return Rollout(obs=obs, action=action, reward=reward, terminated=done, truncated=np.zeros_like(done), first=first,
                   state=(), last_state=(), finals=None, raw=raw)  # fmt: skip


def microseconds(call: Callable[[], Any], repeats: int) -> float:
    """Median time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return round(1e6 * statistics.median(times), 1)


def measure(kind: str, size: int, batch: int, repeats: int) -> dict[str, float]:
    """A full buffer of one kind."""
    rng = np.random.default_rng(0)
    spaces = Spaces(gym.spaces.Box(-9, 9, (WIDTH,)), gym.spaces.Box(-1, 1, (6,)))
    cls = BUFFERS[kind]
    buffer = cls(cls.Config(size=size), spaces, ENVS, name="replay", rng=rng)
    start, part = 0, 2_000
    while start * ENVS < 1.1 * size:
        buffer.add(rollout(part, start, rng))
        start += part
    found = {"draw": microseconds(lambda: buffer.sample(batch, n_step=3), repeats)}
    if kind == "prioritized":
        index, errors = buffer.sample(batch)["index"].copy(), rng.random(batch)
        found["draw_places_only"] = microseconds(lambda: buffer._draw(batch, 1, 1), repeats)
        found["update_priorities"] = microseconds(lambda: buffer.update_priorities(index, errors), repeats)
    found["draw_sequences_32x20"] = microseconds(lambda: buffer.sample_sequences(32, 20), repeats)
    steps = iter([rollout(1, start + i, rng) for i in range(repeats)])
    found["add_one_vector_step"] = microseconds(lambda: buffer.add(next(steps)), repeats)
    with tempfile.TemporaryDirectory() as folder:
        buffer.attach(Path(folder))
        found["save_everything"] = microseconds(lambda: buffer.save("step=1", ()), 1)
        buffer.add(rollout(100, start + repeats, rng))
        found["save_800_new_steps"] = microseconds(lambda: buffer.save("step=2", ("step=1",)), 1)
    return found


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000_000, help="steps in the buffer")
    parser.add_argument("--batch", type=int, default=256, help="steps drawn at once")
    parser.add_argument("--repeats", type=int, default=300, help="calls timed")
    args = parser.parse_args()
    kinds = {kind: measure(kind, args.size, args.batch, args.repeats) for kind in ("uniform", "prioritized")}
    print(json.dumps({"size": args.size, "batch": args.batch, "unit": "us", **kinds}))


if __name__ == "__main__":
    main()
