"""Random-action steps per second through our collector against the raw backend, interleaved in one run.

python benchmarks/env_fps.py                                     every environment at 8 and 16, one JSON line each
python benchmarks/env_fps.py --only CartPole Pong --num-envs 8   some of them

`raw` is the library's own vector environment in a bare loop: nothing is stored. `ours` is `Collector.collect`: the same
environments under the contract (same-step autoreset, true final observations), every step stored, episodes counted.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np

from ludus.acting.uniform import uniform
from ludus.config.schema import Environment
from ludus.data.collector import Collector
from ludus.envs.make import cores, make_vector
from ludus.envs.vector import VectorEnv
from ludus.types import Acted, Array, Tree

ROLLOUT = 128
GOAL = 0.95
Chunk = Callable[[int], None]
"""Does that many vector steps."""


@dataclass(frozen=True)
class Contest:
    """One environment on one backend, as the library makes it and as we do."""

    raw: Callable[[int], Any]
    environment: dict[str, Any]


def gym_vector(id: str, mode: str, **options: Any) -> Callable[[int], Any]:
    """Gymnasium's own vector environment."""
    return lambda count: gym.make_vec(id, num_envs=count, vectorization_mode=mode, **options)


def gym_sync(id: str, *wrappers: Any) -> Callable[[int], Any]:
    """Gymnasium's SyncVectorEnv, with the same-step autoreset that ours has."""
    modes = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    return gym_vector(id, "sync", vector_kwargs=modes, wrappers=list(wrappers))


def pool(id: str) -> Callable[[int], Any]:
    """EnvPool on all cores."""

    def make(count: int) -> Any:
        import envpool

        return envpool.make(id, env_type="gymnasium", num_envs=count, num_threads=min(cores(), count), seed=0)

    return make


def atari(count: int) -> Any:
    """ALE's own vector environment: 84x84, four frames, frame skip 4."""
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv("pong", num_envs=count)


def minatar(count: int) -> Any:
    """Gymnasium's SyncVectorEnv of MinAtar's own environments, which have no time limit."""
    from minatar.gym import BaseEnv

    games = [functools.partial(BaseEnv, "breakout", use_minimal_action_set=True)] * count
    return gym.vector.SyncVectorEnv(games, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)


def mini_grid() -> list[Any]:
    """The image alone: its mission is text."""
    from minigrid.wrappers import ImgObsWrapper

    return [ImgObsWrapper]


DEEPMIND: dict[str, Any] = {
    "kwargs": {"obs_type": "grayscale", "frameskip": 1, "repeat_action_probability": 0.0},
    "wrappers": ["fire_reset", "noop_reset", "max_and_skip", "clip_reward"],
    "resize_obs": True,
    "frame_stack": 4,
}
"""What AtariVectorEnv does when nothing is said."""
CONTESTS: dict[str, Callable[[], Contest]] = {
    "CartPole": lambda: Contest(gym_vector("CartPole-v1", "vector_entry_point"), {"id": "CartPole-v1"}),
    "Pong": lambda: Contest(atari, {"id": "ALE/Pong-v5", "vectorization": "native", **DEEPMIND}),
    "HalfCheetah": lambda: Contest(gym_sync("HalfCheetah-v5"), {"id": "HalfCheetah-v5", "vectorization": "sync"}),
    "HalfCheetah-envpool": lambda: Contest(
        pool("HalfCheetah-v5"), {"id": "HalfCheetah-v5", "vectorization": "envpool"}
    ),
    "MinAtar": lambda: Contest(minatar, {"id": "MinAtar/Breakout-v1"}),
    "MiniGrid": lambda: Contest(
        gym_sync("MiniGrid-DoorKey-8x8-v0", *mini_grid()),
        {"id": "MiniGrid-DoorKey-8x8-v0", "vectorization": "sync", "wrappers": [{"id": "minigrid_image"}]},
    ),
}


class Presampled:
    """A policy that costs nothing: actions drawn beforehand."""

    def __init__(self, actions: Array) -> None:
        self.actions, self.at = actions, 0

    def initial_state(self, batch: int) -> Tree:
        """None needed."""
        return ()

    def act(self, obs_B: Array, state: Tree, first_B: Array) -> Acted:
        """The next ones."""
        self.at = (self.at + 1) % len(self.actions)
        action = self.actions[self.at]
        return Acted(action, action, state, {})


def raw_loop(env: Any, actions: Array) -> Chunk:
    """The library alone."""
    env.reset()

    def run(steps: int) -> None:
        for i in range(steps):
            env.step(actions[i % ROLLOUT])

    return run


def our_loop(env: VectorEnv, actions: Array) -> Chunk:
    """Whole rollouts, stored."""
    collector, policy = Collector(env, list(range(env.num_envs))), Presampled(actions)

    def run(steps: int) -> None:
        for _ in range(steps // ROLLOUT):
            collector.collect(policy, ROLLOUT)

    return run


def bare_loop(env: VectorEnv, actions: Array) -> Chunk:
    """Our vector environment without the collector."""
    env.reset(range(env.num_envs))

    def run(steps: int) -> None:
        for i in range(steps):
            env.step(actions[i % ROLLOUT])

    return run


def timed(loop: Chunk, steps: int) -> float:
    """Seconds."""
    began = time.perf_counter()
    loop(steps)
    return time.perf_counter() - began


def measure(name: str, count: int, seconds: float, repeats: int) -> dict[str, Any]:
    """Medians over interleaved chunks; the ratio is taken within each pair, so that a busy machine slows both."""
    contest = CONTESTS[name]()
    raw = contest.raw(count)
    cfg = Environment(**contest.environment)
    ours, bare = make_vector(cfg, num_envs=count), make_vector(cfg, num_envs=count)
    rng = np.random.default_rng(0)
    actions = np.stack([uniform(ours.action_space, count, rng) for _ in range(ROLLOUT)])
    loops = {"raw": raw_loop(raw, actions), "ours": our_loop(ours, actions), "bare": bare_loop(bare, actions)}
    warm = max(timed(loop, ROLLOUT) for loop in loops.values())
    steps = ROLLOUT * max(1, round(seconds / warm))
    taken: dict[str, list[float]] = {key: [] for key in loops}
    for repeat in range(repeats):
        keys = list(loops)
        for key in keys[repeat % 3 :] + keys[: repeat % 3]:
            taken[key].append(timed(loops[key], steps))
    for env in (raw, ours, bare):
        env.close()
    rate = {key: round(steps * count / statistics.median(values)) for key, values in taken.items()}
    ratio = {
        key: round(statistics.median(r / o for r, o in zip(taken["raw"], taken[key], strict=True)), 3)
        for key in ("ours", "bare")
    }
    facts = {"environment": name, "num_envs": count, "backend": ours.backend, "steps_per_second": rate}
    return {"benchmark": "env_fps", **facts, "times_raw": ratio, "passes": ratio["ours"] >= GOAL}


def main() -> int:
    """Measure and print one JSON line each; exit 1 when one is below the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CONTESTS), help="these environments")
    parser.add_argument("--num-envs", nargs="+", type=int, default=[8, 16])
    parser.add_argument("--seconds", type=float, default=0.3, help="length of one chunk")
    parser.add_argument("--repeats", type=int, default=15, help="chunks of each contestant")
    args = parser.parse_args()
    passed = True
    for name in args.only or CONTESTS:
        for count in args.num_envs:
            result = measure(name, count, args.seconds, args.repeats)
            print(json.dumps(result), flush=True)
            passed &= result["passes"]
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
