"""The base of wrappers around a whole vector environment."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import replace

import gymnasium as gym

from ludus.envs.vector import VectorEnv
from ludus.types import Array, State, StepResult, Tree


class VectorWrapper(VectorEnv):
    """Changes the observations of a whole vector."""

    def __init__(self, inner: VectorEnv, space: gym.Space) -> None:
        super().__init__(replace(inner.info, observation_space=space), inner.num_envs)
        self.inner, self.backend = inner, inner.backend

    @abc.abstractmethod
    def convert(self, obs: Tree) -> Tree:
        """[B, ...] of the inner environment as [B, ...] of this one, in new arrays."""

    def reset(self, seeds: Sequence[int]) -> Tree:
        return self.convert(self.inner.reset(seeds))

    def step(self, action: Array) -> StepResult:
        obs, reward, terminated, truncated, final_obs, raw_reward, broken, continues = self.inner.step(action)
        final = None if final_obs is None else self.convert(final_obs)
        return StepResult(self.convert(obs), reward, terminated, truncated, final, raw_reward, broken, continues)

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        return self.inner.render(index, final=final)

    def choose_snapshot_method(self) -> str:
        self.snapshot_method = method = self.inner.choose_snapshot_method()
        self.refused = self.inner.refused
        return method

    def snapshot(self) -> State:
        return self.inner.snapshot()

    def restore(self, state: State) -> Tree:
        return self.convert(self.inner.restore(state))

    def close(self) -> None:
        self.inner.close()
