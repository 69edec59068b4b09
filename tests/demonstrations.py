"""Small data sets for tests: episodes whose actions are a simple function of what is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ludus.data.datasets.statistics import Episode
from ludus.data.datasets.write import write_dataset
from ludus.types import Spaces, space_tree, tree_index, tree_leaves, tree_map

CART = Spaces(gym.make("CartPole-v1").observation_space, gym.spaces.Discrete(2))
PENDULUM = Spaces(gym.make("Pendulum-v1").observation_space, gym.spaces.Box(-2.0, 2.0, (1,), np.float32))


def demonstrations(
    folder: Path, spaces: Spaces = CART, episodes: int = 6, steps: int = 20, seed: int = 0
) -> tuple[Path, list[Episode]]:
    """A data set, and the episodes that are in it: lengths differ, every other one terminates."""
    rng = np.random.default_rng(seed)
    made = [episode(spaces, steps + i, i, rng) for i in range(episodes)]
    write_dataset(folder, spaces, made, policy="test")
    return folder, made


def episode(spaces: Spaces, steps: int, i: int, rng: np.random.Generator) -> Episode:
    """Observations at random; actions follow the first number of each."""
    obs = tree_map(lambda leaf: draw(leaf, steps + 1, rng), space_tree(spaces.observation))
    return Episode(obs, act(spaces.action, obs, rng), rng.normal(size=steps).astype(np.float32), i % 2 == 0, 100 + i)


def draw(space: Any, rows: int, rng: np.random.Generator) -> np.ndarray:
    if isinstance(space, gym.spaces.Box) and space.dtype.kind == "f":
        return rng.normal(size=(rows, *space.shape)).clip(-1, 1).astype(space.dtype)
    space.seed(int(rng.integers(1 << 30)))
    return np.stack([np.asarray(space.sample()) for _ in range(rows)])


def act(space: Any, obs: Any, rng: np.random.Generator) -> np.ndarray:
    seen = tree_index(obs, slice(-1))
    if not isinstance(seen, np.ndarray) or seen.dtype.kind != "f":
        return draw(space, len(tree_leaves(seen)[0]), rng)
    first = seen.reshape(len(seen), -1)[:, :1]
    if isinstance(space, gym.spaces.Discrete):
        return (first[:, 0] > 0).astype(np.int64) + int(space.start)
    if not isinstance(space, gym.spaces.Box):
        return draw(space, len(seen), rng)
    return (1.5 * first).clip(space.low, space.high).astype(space.dtype)


def same(one: Episode, other: Episode) -> bool:
    """Every number is equal, and of the same kind."""
    pairs: list[bool] = []

    def compare(a: np.ndarray, b: np.ndarray) -> None:
        pairs.append(a.dtype == b.dtype and np.array_equal(a, b))

    tree_map(compare, *((each.obs, each.action, each.reward) for each in (one, other)))
    return all(pairs) and (one.terminated, one.seed) == (other.terminated, other.seed)
