"""Uniformly random actions of a space."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from ludus.types import Array


def uniform(space: gym.Space, batch: int, rng: np.random.Generator) -> Array:
    """`batch` uniform actions."""
    if isinstance(space, gym.spaces.Discrete):
        return rng.integers(int(space.n), size=batch)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return rng.integers(space.nvec, size=(batch, *space.shape))
    if isinstance(space, gym.spaces.MultiBinary):
        return rng.integers(2, size=(batch, *space.shape))
    assert isinstance(space, gym.spaces.Box)
    drawn = rng.uniform(*bounds(space), size=(batch, *space.shape)).astype(np.float32)
    return np.clip(drawn, *single_bounds(space))  # the cast may round beyond them


def single_bounds(space: gym.spaces.Box) -> tuple[Array, Array]:
    """The bounds of a Box as float32, inside of them where float32 has no such number."""
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    infinity = np.float32(np.inf)
    low = np.where(low < space.low, np.nextafter(low, infinity), low)
    return low, np.where(high > space.high, np.nextafter(high, -infinity), high)


def bounds(space: gym.spaces.Box) -> tuple[Array, Array]:
    """Finite bounds: an unbounded side counts as 1 away from the other side or from zero."""
    low = np.where(np.isfinite(space.low), space.low, -1.0)
    return low, np.where(np.isfinite(space.high), space.high, np.maximum(low, 0.0) + 1.0)
