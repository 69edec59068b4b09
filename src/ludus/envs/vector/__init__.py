"""The one contract of vector environments, whatever the backend.

Same-step autoreset: where an episode ended, `obs` is already the first observation of the next one and `final_obs` the
true last observation of the old one. `terminated` and `truncated` stay apart; both may be true (callers treat that as
termination). No reset transition ever appears. Shapes: B environments.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym

from ludus.envs.info import EnvInfo
from ludus.types import Array


class StepResult(NamedTuple):
    """One vector step. The arrays belong to the environment and are overwritten by the next call."""

    obs: Array
    """[B, ...] in the space's dtype."""
    reward: Array
    """float32 [B]: what the policy is trained on."""
    terminated: Array
    """bool [B]"""
    truncated: Array
    """bool [B]"""
    final_obs: Array | None
    """[B, ...], valid exactly where terminated | truncated; None when nobody finished."""


class VectorEnv(abc.ABC):
    """B environments stepped together."""

    backend: str
    raw_reward: Array
    """float32 [B], valid after a step: what the environments themselves paid, before any wrapper. Log this one."""
    broken: Array | None = None
    """bool [B] after a step in which a worker was replaced (`on_worker_death: restart`), else None.

    Such a row is no transition: the action was lost. It reads truncated, reward 0, final_obs the last good observation,
    obs the first of a new episode. Give it no weight in an update and leave its episode out of the statistics.
    """

    def __init__(self, info: EnvInfo, num_envs: int) -> None:
        self.info, self.num_envs = info, num_envs

    @property
    def id(self) -> str:
        """Environment id."""
        return self.info.id

    @property
    def observation_space(self) -> gym.Space:
        """Space of ONE environment."""
        return self.info.observation_space

    @property
    def action_space(self) -> gym.Space:
        """Space of ONE environment: Discrete from 0, or one-dimensional MultiDiscrete, MultiBinary or Box."""
        return self.info.action_space

    @property
    def reward_threshold(self) -> float | None:
        """Mean return that counts as solved."""
        return self.info.reward_threshold

    @property
    def max_episode_steps(self) -> int | None:
        """Time limit."""
        return self.info.max_episode_steps

    @property
    def is_image(self) -> bool:
        """Observations are uint8 pixels, channels first."""
        return self.info.is_image

    @abc.abstractmethod
    def reset(self, seeds: Sequence[int]) -> Array:
        """First observations [B, ...] of new episodes; one seed per environment."""

    @abc.abstractmethod
    def step(self, action: Array) -> StepResult:
        """One step of every environment; Box actions are clipped to the finite bounds in a copy."""

    @abc.abstractmethod
    def render(self, index: int = 0, *, final: bool = False) -> Array:
        """uint8 [H, W, 3] of one environment; `final`: the last frame of the episode that has just ended."""

    def close(self) -> None:  # noqa: B027 - nothing to do unless a backend holds something
        """Free everything; calling it twice is fine."""

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
