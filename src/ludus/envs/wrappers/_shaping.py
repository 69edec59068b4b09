"""Potential-based reward shaping (Ng, Harada and Russell, 1999): it changes what is learned fast, not what is best."""

from __future__ import annotations

import abc
from typing import Any

import gymnasium as gym


class PotentialShaping(gym.Wrapper, abc.ABC):
    """Adds gamma * potential(s') - potential(s) to the reward.

    The potential of a terminal state counts as 0, or the shaping would pay for ending; a truncated state keeps its own.
    `gamma` must be the algorithm's. The raw reward stays in `info["raw_reward"]` and `VectorEnv.raw_reward`.
    """

    def __init__(self, env: gym.Env, gamma: float) -> None:
        super().__init__(env)
        if not 0 < gamma <= 1:
            raise ValueError(f"gamma must lie in (0, 1], got {gamma}")
        self._gamma, self._potential = gamma, 0.0

    @abc.abstractmethod
    def potential(self, obs: Any) -> float:
        """How promising an observation is."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._potential = self.potential(obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        before, self._potential = self._potential, 0.0 if terminated else self.potential(obs)
        info.setdefault("raw_reward", reward)
        info["shaping"] = self._gamma * self._potential - before
        return obs, float(reward) + info["shaping"], terminated, truncated, info


def require(env: gym.Env, name: str, kind: type) -> None:
    """Shapers know one environment's observations by heart."""
    if not isinstance(env.unwrapped, kind):
        raise ValueError(f"is for {name}, not for {type(env.unwrapped).__name__}")
