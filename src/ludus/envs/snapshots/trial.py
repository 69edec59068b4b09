"""The self-tests of the snapshot methods: temporary environments, fixed seeds, every bit compared."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np

from ludus.envs import Action
from ludus.envs.deadline import pass_on
from ludus.envs.snapshots import BARRIER, NONE, Keeper, Refused, SnapshotChoice
from ludus.envs.spaces import wrapper_of
from ludus.envs.wrappers.rewards import RawReward
from ludus.errors import LudusError
from ludus.terminal import warn
from ludus.text import duration
from ludus.types import Array, Tree, tree_index, tree_leaves

if TYPE_CHECKING:
    from ludus.envs.vector import VectorEnv

STEPS, FEWEST = 30, 3
"""Steps after which a trial resets an episode, so that it sees several beginnings; and where steps are slow."""
PATIENCE = 15.0
"""Seconds that the trial of one method should take at most."""
SEEDS = (101, 102)
EPISODES = 8
"""Episodes to compare where state may survive a reset, which need not show in the first ones."""

_announced: set[str] = set()
"""Ids whose slow steps were told."""


class Pace:
    """How many steps an episode of a trial has: as many as `PATIENCE` allows, found by its first steps.

    `beat` is called after every step: a sign of life.
    """

    def __init__(self, id: str, episodes: int, beat: Callable[[], None]) -> None:
        """`episodes` is how many the whole trial plays."""
        self.id = id
        self.steps = STEPS
        self.seconds = 0.0
        """Of one step."""
        self._episodes, self._alive, self._taken, self._begun = episodes, beat, 0, 0.0

    @property
    def slow(self) -> float:
        """Seconds of a step, if there are fewer than usual."""
        return self.seconds if self.steps < STEPS else 0.0

    def beat(self) -> None:
        """After every step."""
        self._alive()
        self._taken += 1
        if self._taken == 1:
            self._begun = time.monotonic()
        elif self._taken == FEWEST:
            self.seconds = (time.monotonic() - self._begun) / (FEWEST - 1)
            self.steps = max(FEWEST, min(STEPS, int(PATIENCE / (self._episodes * self.seconds + 1e-9))))
            if self.slow and self.id not in _announced:
                _announced.add(self.id)
                about = duration(self.seconds * self.steps * self._episodes)
                warn(f"{self.id}: a step takes {self.seconds:.2g} s; trying out how to save it takes about {about}")


def resumes(keeper: Keeper, fresh: gym.Env, episodes: int, beat: Callable[[], None]) -> float:
    """Raise Refused unless restored environments go on like `fresh`, from which states are taken; closes it.

    Returns the seconds of a step, if they made it shorter.
    """
    pace = Pace(keeper.id, len(SEEDS) * 2 * (episodes + 2), beat)
    with _trial() as stack:
        env = keeper.attach(fresh)
        stack.callback(env.close)
        for seed in SEEDS:
            env.reset(seed=seed)
            keeper.capture(env)  # refused early: steps may be slow
            _play(env, seed, 2, pace)
            _require_equal_future(stack, keeper, env, seed, episodes, pace)
            env.reset()
            _require_equal_future(stack, keeper, env, seed, 1, pace)
    return pace.slow


def _require_equal_future(stack: ExitStack, keeper: Keeper, env: gym.Env, seed: int, episodes: int, pace: Pace) -> None:
    other = keeper.restore(keeper.capture(env))
    stack.callback(other.close)
    _compare(*(_play(each, seed + 1, episodes, pace) for each in (env, other)))


def repeats(keeper: Keeper, fresh: gym.Env, beat: Callable[[], None]) -> float:
    """Raise Refused unless two new environments with the same seed and actions do the same; closes both.

    Returns the same as `resumes`.
    """
    seed, half = SEEDS[0], EPISODES // 2
    pace = Pace(keeper.id, 2 * half, beat)
    with _trial() as stack:
        stack.callback(fresh.close)
        other = keeper.make()
        stack.callback(other.close)
        _compare(*([_digest(env.reset(seed=seed)[0]), *_play(env, seed, half, pace)] for env in (fresh, other)))
    return pace.slow


def vector_choice(method: str, make: Callable[[], VectorEnv]) -> SnapshotChoice:
    """The choice of a backend with vectors of its own: `method` if it passes the same self-test, else none."""
    try:
        with _trial() as stack:
            one, other = make(), make()
            stack.callback(one.close)
            stack.callback(other.close)
            if method == BARRIER:
                _vector_repeats(one, other)
            else:
                one.snapshot_method = other.snapshot_method = method
                _vector_resumes(one, other)
    except Refused as reason:
        return SnapshotChoice(NONE, {method: str(reason)})
    return SnapshotChoice(method, {})


def _vector_resumes(one: VectorEnv, other: VectorEnv) -> None:
    for env, seed in ((one, 0), (other, one.num_envs)):
        env.reset(range(seed, seed + one.num_envs))
        _play_vector(env, seed)
    seen = other.restore(one.snapshot())
    if not all(np.isfinite(leaf).all() for leaf in tree_leaves(seen)):
        raise Refused("the restored observation is not finite")
    _compare(_play_vector(one, 1), _play_vector(other, 1))


def _vector_repeats(one: VectorEnv, other: VectorEnv) -> None:
    seeds = [SEEDS[0] + i for i in range(one.num_envs)]
    _compare(*([_digest(env.reset(seeds)), *_play_vector(env, SEEDS[1])] for env in (one, other)))


@contextmanager
def _trial() -> Iterator[ExitStack]:
    """Close the environments at the end; any error becomes Refused, so that it never ends the run."""
    with ExitStack() as stack:
        try:
            yield stack
        except Refused:
            raise
        except LudusError as error:
            raise Refused(error.line()) from error
        except BaseException as error:  # environments raise what they like
            pass_on(error)
            raise Refused(f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}") from error


def _play(env: gym.Env, seed: int, episodes: int, pace: Pace) -> list[bytes]:
    """Play on from the current state; returns digests of everything the environment returns."""
    meter, actions, seen = wrapper_of(env, RawReward), _actions(env.action_space, seed), []
    for episode in range(episodes):
        if episode:
            seen.append(_digest(env.reset()[0]))
        for taken, action in enumerate(actions):
            if taken == pace.steps:  # decided by the first steps of all
                break
            obs, reward, terminated, truncated, _ = env.step(action)
            pace.beat()
            paid = 0.0 if meter is None else meter.take()
            seen.append(_digest(obs, float(reward), paid, bool(terminated), bool(truncated)))
            if terminated or truncated:
                seen.append(_digest(env.reset()[0]))
    return seen


def _play_vector(env: VectorEnv, seed: int) -> list[bytes]:
    actions = [_actions(env.action_space, seed + i) for i in range(env.num_envs)]
    seen = []
    for _ in range(2 * STEPS):
        result = env.step(np.stack([next(row) for row in actions]))
        last = [] if result.final_obs is None else [tree_index(result.final_obs, result.done)]
        seen.append(_digest(result.obs, result.reward, result.raw_reward, result.terminated, result.truncated, *last))
    return seen


def _compare(expected: list[bytes], found: list[bytes]) -> None:
    for i, (a, b) in enumerate(zip(expected, found, strict=False)):
        if a != b:
            raise Refused(f"it differs from step {i + 1} on")
    if len(expected) != len(found):
        raise Refused("its episodes have other lengths")


def _digest(*parts: Tree) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in (leaf for tree in parts for leaf in tree_leaves(tree)):
        array: Array = np.ascontiguousarray(part)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.data if array.size else b"")
    return digest.digest()


def _actions(space: gym.Space, seed: int) -> Iterator[Action]:
    """Random actions as environments get them: integers or new arrays."""
    rng = np.random.default_rng(seed)
    while True:
        if isinstance(space, gym.spaces.Discrete):
            yield int(rng.integers(space.n))
        elif isinstance(space, gym.spaces.Box):
            low, high = np.maximum(space.low, -3), np.minimum(space.high, 3)
            yield rng.uniform(low, np.maximum(low, high)).astype(space.dtype)
        else:
            top = space.nvec if isinstance(space, gym.spaces.MultiDiscrete) else np.full(space.shape or (), 2)
            yield rng.integers(top).astype(space.dtype)
