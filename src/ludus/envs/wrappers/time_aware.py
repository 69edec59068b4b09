"""Time as part of the observation, where the time limit is part of the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

from ludus.envs.vector import VectorEnv
from ludus.envs.vector.vector_wrapper import VectorWrapper
from ludus.registry import WRAPPERS
from ludus.types import Array, StepResult


@WRAPPERS.register("time_aware")
@WRAPPERS.register("TimeAware")
class TimeAware(gym.Wrapper):
    """Appends the elapsed part of the episode's time, 0 to 1, to a vector observation.

    It reads the clock of the time limit itself, which counts the frames that a wrapper between them skips.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        spec = env.spec
        self._limit, self._elapsed = _limit(spec.max_episode_steps if spec else None), 0
        self.observation_space = _extended(env.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._with_time(obs, 0), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._with_time(obs, self._elapsed + 1), reward, terminated, truncated, info

    def _with_time(self, obs: Any, counted: int) -> Any:
        clock = _clock(self.env)
        self._elapsed = counted if clock is None else int(clock._elapsed_steps)
        return np.append(obs, self._elapsed / self._limit).astype(obs.dtype)

    @classmethod
    def vectorize(cls, venv: VectorEnv) -> VectorEnv:
        """The same for a whole vector at once."""
        return _TimedVector(venv)


class _TimedVector(VectorWrapper):
    def __init__(self, inner: VectorEnv) -> None:
        super().__init__(inner, _extended(inner.observation_space))
        self._limit, self._elapsed = _limit(inner.max_episode_steps), np.zeros(inner.num_envs, np.int64)

    def reset(self, seeds: Sequence[int]) -> Array:
        self._elapsed.fill(0)
        return self.convert(self.inner.reset(seeds))

    def step(self, action: Array) -> StepResult:
        result = self.inner.step(action)
        self._elapsed += 1
        final = None if result.final_obs is None else self.convert(result.final_obs)
        self._elapsed[result.done] = 0
        return result._replace(obs=self.convert(result.obs), final_obs=final)

    def convert(self, obs: Array) -> Array:
        return np.concatenate((obs, self._elapsed[:, None] / self._limit), axis=1, dtype=obs.dtype, casting="same_kind")

    def snapshot(self) -> dict[str, Any]:
        return {"inner": self.inner.snapshot(), "elapsed": self._elapsed.copy()}

    def restore(self, state: dict[str, Any]) -> Array:
        obs = self.inner.restore(state["inner"])
        self._elapsed[...] = state["elapsed"]
        return self.convert(obs)


def _clock(env: gym.Env) -> Any:
    """The outermost TimeLimit inside, or None where an environment keeps its time itself."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            return env
        env = env.env
    return None


def _limit(steps: int | None) -> int:
    if steps is None:
        raise ValueError("needs a time limit: set environment.max_episode_steps")
    return steps


def _extended(space: gym.Space) -> Box:
    if not isinstance(space, Box) or len(space.shape) != 1 or space.dtype.kind != "f":
        raise ValueError(f"extends vectors of floats, the observation is {space}")
    low, high = np.append(space.low, 0.0), np.append(space.high, 1.0)
    return Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype)
