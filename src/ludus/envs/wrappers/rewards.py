"""Wrappers that change rewards, and the meter under all wrappers that records the environment's own."""

from __future__ import annotations

import abc
import math

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.envs import Action, Observation, Options, ResetReturn, StepReturn
from ludus.types import Array


class RawReward(gym.Wrapper):
    """Sums the rewards of the environment itself until they are taken, so that no wrapper can hide them.

    A sum, because a wrapper may step the environment several times for one step of its own.
    """

    _paid = 0.0

    def step(self, action: Action) -> StepReturn:
        """Step and record the reward."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._paid += float(reward)
        info["raw_reward"] = reward
        return obs, reward, terminated, truncated, info

    def take(self) -> float:
        """The sum since the last call."""
        paid, self._paid = self._paid, 0.0
        return paid


class ClipReward(gym.RewardWrapper):
    """Clips the reward to [low, high]; logged returns stay raw."""

    def __init__(self, env: gym.Env, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        if low >= high:
            raise ValueError(f"low must be below high, got {low} and {high}")
        self._low, self._high = low, high

    def reward(self, reward: float) -> float:  # type: ignore[override]
        """The clipped reward."""
        return min(max(float(reward), self._low), self._high)


class ScaleReward(gym.RewardWrapper):
    """Multiplies the reward by `scale`; logged returns stay raw."""

    def __init__(self, env: gym.Env, scale: float) -> None:
        super().__init__(env)
        if scale == 0:
            raise ValueError("a scale of 0 leaves no reward")
        self._scale = scale

    def reward(self, reward: float) -> float:  # type: ignore[override]
        """The scaled reward."""
        return float(reward) * self._scale


class ChangedReward(gym.Wrapper, abc.ABC):
    """Base of wrappers whose reward depends on more than the reward.

    The raw reward stays in `info["raw_reward"]` and `StepResult.raw_reward`.
    """

    def begin(self, obs: Observation) -> None:
        """Called with the first observation of every episode."""

    @abc.abstractmethod
    def changed(self, action: Action, result: StepReturn) -> float:
        """The reward of a step, from its action and what the environment returned."""

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        self.begin(obs)
        return obs, info

    def step(self, action: Action) -> StepReturn:
        """Step; the reward is the changed one."""
        result = self.env.step(action)
        obs, reward, terminated, truncated, info = result
        info.setdefault("raw_reward", reward)
        return obs, self.changed(action, result), terminated, truncated, info


class ActionReward(ChangedReward):
    """Adds `rewards[action]` to the reward, 0 for unnamed actions. Not potential-based: it changes the task."""

    def __init__(self, env: gym.Env, rewards: list[float] | dict[int, float]) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, Discrete):
            raise ValueError(f"pays for Discrete actions, this one takes {env.action_space}")
        first = int(env.action_space.start)
        named = dict(enumerate(rewards, first)) if isinstance(rewards, list) else rewards
        wrong = [action for action in named if not env.action_space.contains(action)]
        if wrong:
            raise ValueError(f"{wrong[0]} is not in {env.action_space}")
        self._rewards = {int(action): float(reward) for action, reward in named.items()}

    def changed(self, action: Action, result: StepReturn) -> float:
        """The reward plus that of the action."""
        return float(result[1]) + self._rewards.get(int(action), 0.0)


class StateCountBonus(ChangedReward):
    """Adds scale / sqrt(visits) of the cell a step leads to (Strehl and Littman, 2008).

    Each environment counts for itself, over all episodes. The range of each entry of a vector is divided into `bins`
    cells; `low` and `high` replace the bounds of the space, where those are infinite.
    """

    _bins: Array | None = None

    def __init__(
        self,
        env: gym.Env,
        scale: float = 0.1,
        bins: int | list[int] = 20,
        low: list[float] | None = None,
        high: list[float] | None = None,
    ) -> None:
        super().__init__(env)
        if scale <= 0:
            raise ValueError(f"scale must be positive, got {scale}")
        self._scale = scale
        self._visits: dict[tuple[int, ...], int] = {}
        if not isinstance(env.observation_space, Discrete):
            self._divide(env.observation_space, bins, low, high)

    def changed(self, action: Action, result: StepReturn) -> float:
        """The reward plus the bonus of the cell; outside of the bounds it is the nearest one."""
        obs, reward = result[:2]
        place = np.asarray(obs)[None]
        if self._bins is not None:
            place = np.clip(((np.asarray(obs, float) - self._low) / self._width).astype(int), 0, self._bins - 1)
        cell = tuple(place.tolist())
        visits = self._visits[cell] = self._visits.get(cell, 0) + 1
        return float(reward) + self._scale / math.sqrt(visits)

    def _divide(self, space: gym.Space, bins: int | list[int], *bounds: list[float] | None) -> None:
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise ValueError(f"counts the states of vectors and discretes, the observation is {space}")
        size = space.shape[0]
        given = zip((space.low, space.high), bounds, strict=True)
        self._low, top = (np.array(own if bound is None else bound, float) for own, bound in given)
        self._bins = np.full(size, bins) if isinstance(bins, int) else np.array(bins)
        if any(values.shape != (size,) for values in (self._low, top, self._bins)):
            raise ValueError(f"low, high and bins need {size} values")
        if not (np.isfinite(self._low).all() and np.isfinite(top).all() and (self._low < top).all()):
            raise ValueError("needs finite bounds with low below high; give low and high")
        if self._bins.min() < 1:
            raise ValueError(f"bins must be at least 1, got {bins}")
        self._width = (top - self._low) / self._bins
