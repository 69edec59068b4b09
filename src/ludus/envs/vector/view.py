"""A vector environment seen through something: the base of vector-level wrappers."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym

from ludus.envs.vector import StepResult, VectorEnv
from ludus.types import Array


class ObservationView(VectorEnv):
    """Changes the observations of a whole vector."""

    def __init__(self, inner: VectorEnv, space: gym.Space) -> None:
        super().__init__(replace(inner.info, observation_space=space), inner.num_envs)
        self.inner, self.backend, self.raw_reward = inner, inner.backend, inner.raw_reward

    @abc.abstractmethod
    def convert(self, obs: Array) -> Array:
        """[B, ...] of the inner environment as [B, ...] of this one, in a new array."""

    def reset(self, seeds: Sequence[int]) -> Array:
        return self.convert(self.inner.reset(seeds))

    def step(self, action: Array) -> StepResult:
        obs, reward, terminated, truncated, final_obs = self.inner.step(action)
        self.broken, self.continues = self.inner.broken, self.inner.continues
        seen = None if final_obs is None else self.convert(final_obs)
        return StepResult(self.convert(obs), reward, terminated, truncated, seen)

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        return self.inner.render(index, final=final)

    @property
    def rung(self) -> str:
        rung = self.inner.rung
        self.refused = self.inner.refused
        return rung

    def snapshot(self) -> dict[str, Any]:
        return self.inner.snapshot()

    def restore(self, state: dict[str, Any]) -> Array:
        return self.convert(self.inner.restore(state))

    def close(self) -> None:
        self.inner.close()
