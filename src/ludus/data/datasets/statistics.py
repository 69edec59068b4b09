"""What a data set is like: episodes, steps, returns, and how each number of observations and actions is distributed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ludus.math.running import RunningMoments
from ludus.types import Array, Spaces, Tree, space_tree, tree_index, tree_map


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of T steps, as policies see it."""

    obs: Tree
    """[T + 1, ...]: the last one is the episode's true final observation."""
    action: Array
    """[T, ...]: as the environment took it."""
    reward: Array
    """float32 [T]"""
    terminated: bool
    """How it ended; if not so, it was truncated."""
    seed: int | None = None
    """Of the reset that began it, where it is known."""

    def __len__(self) -> int:
        return len(self.reward)


class Statistics:
    """Least, largest, mean and deviation of every number in rows [N, ...] of one shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.low, self.high = np.full(shape, np.inf), np.full(shape, -np.inf)
        self._moments = RunningMoments(shape)

    def update(self, rows_N: Array) -> None:
        """Take in more rows."""
        if len(rows_N):
            self.low, self.high = np.minimum(self.low, rows_N.min(0)), np.maximum(self.high, rows_N.max(0))
            self._moments.update(rows_N)

    @property
    def count(self) -> int:
        """Rows so far."""
        return self._moments.count

    @property
    def mean(self) -> Array:
        """Mean over the rows."""
        return self._moments.mean

    @property
    def std(self) -> Array:
        """Population deviation over the rows."""
        return self._moments.std


@dataclass
class Summary:
    """Of a whole data set."""

    obs: Tree
    """`Statistics` in a tree like observations, of those an action was taken in."""
    action: Statistics
    lengths: list[int] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    terminated: int = 0
    """Episodes that terminated; the others were truncated."""

    @property
    def steps(self) -> int:
        """Steps of all episodes."""
        return sum(self.lengths)


def statistics_for(spaces: Spaces) -> tuple[Tree, Statistics]:
    """Empty statistics of observations and of actions."""
    obs = tree_map(lambda leaf: Statistics(leaf.shape or ()), space_tree(spaces.observation))
    return obs, Statistics(spaces.action.shape or ())


def summarize(spaces: Spaces, episodes: Iterable[Episode]) -> Summary:
    """Read every episode once."""
    found = Summary(*statistics_for(spaces))
    for episode in episodes:
        tree_map(lambda part, rows: part.update(rows), found.obs, tree_index(episode.obs, slice(-1)))
        found.action.update(episode.action)
        found.lengths.append(len(episode))
        found.returns.append(float(episode.reward.sum(dtype=np.float64)))
        found.terminated += episode.terminated
    return found
