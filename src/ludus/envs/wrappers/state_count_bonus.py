"""A bonus for where the agent has seldom been (Strehl and Littman, 2008)."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.registry import WRAPPERS


@WRAPPERS.register("state_count_bonus")
@WRAPPERS.register("MountainCarV0_StateCountBonus")
class StateCountBonus(gym.Wrapper):
    """Adds scale / sqrt(visits) of the cell the step led to; every environment counts for itself, over all episodes.

    A vector's bounded range is cut into `bins` cells per entry; `low` and `high` stand in for bounds it has not.
    """

    def __init__(
        self,
        env: gym.Env,
        scale: float = 0.1,
        bins: int | list[int] = 20,
        low: list[float] | None = None,
        high: list[float] | None = None,
    ) -> None:
        super().__init__(env)
        space = env.observation_space
        if scale <= 0:
            raise ValueError(f"scale must be positive, got {scale}")
        self._scale = scale
        self._visits: dict[tuple[int, ...], int] = {}
        self._cells = None if isinstance(space, Discrete) else _Cells(space, bins, low, high)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        cell = (int(obs),) if self._cells is None else self._cells.of(obs)
        visits = self._visits[cell] = self._visits.get(cell, 0) + 1
        info.setdefault("raw_reward", reward)
        return obs, float(reward) + self._scale / math.sqrt(visits), terminated, truncated, info


class _Cells:
    def __init__(self, space: gym.Space, bins: int | list[int], low: list[float] | None, high: list[float] | None):
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise ValueError(f"counts the states of vectors and discretes, the observation is {space}")
        size = space.shape[0]
        self._low = np.array(space.low if low is None else low, float)
        top = np.array(space.high if high is None else high, float)
        self._bins = np.full(size, bins) if isinstance(bins, int) else np.array(bins)
        if any(values.shape != (size,) for values in (self._low, top, self._bins)):
            raise ValueError(f"low, high and bins need {size} values")
        if not (np.isfinite(self._low).all() and np.isfinite(top).all() and (self._low < top).all()):
            raise ValueError("needs finite bounds with low below high; give low and high")
        if self._bins.min() < 1:
            raise ValueError(f"bins must be at least 1, got {bins}")
        self._width = (top - self._low) / self._bins

    def of(self, obs: Any) -> tuple[int, ...]:
        """The cell of an observation; outside the bounds it is the nearest one."""
        cell = ((np.asarray(obs, float) - self._low) / self._width).astype(int)
        return tuple(np.clip(cell, 0, self._bins - 1).tolist())
