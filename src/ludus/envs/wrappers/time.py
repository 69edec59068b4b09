"""Wrappers about time: several steps for one action, several observations as one, and the elapsed time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

from ludus.envs import Action, Observation, Options, ResetReturn, StepReturn
from ludus.envs.spaces import wrapper_of
from ludus.envs.vector import VectorEnv, VectorWrapper
from ludus.spaces import Conversion, Image, is_picture, is_pixels, observation_conversion
from ludus.types import Array, State, StepResult


class FrameSkip(gym.Wrapper):
    """Repeats every action `skip` times or until the episode ends; sums rewards, shows the last observation.

    Two numbers are the least and the most of a random count.
    """

    def __init__(self, env: gym.Env, skip: int | tuple[int, int] = 4) -> None:
        super().__init__(env)
        least, most = (skip, skip) if isinstance(skip, int) else skip
        if not 1 <= least <= most:
            raise ValueError(f"skip must be at least 1, or two rising numbers, got {skip}")
        skipped = getattr(env.unwrapped, "_frameskip", 1)
        if skipped != 1:
            raise ValueError(f"needs single frames, ALE itself skips {skipped}; set environment.kwargs.frameskip to 1")
        self._least, self._most = least, most

    def step(self, action: Action) -> StepReturn:
        """Several steps of the environment as one."""
        total = 0.0
        frames: list[Observation] = []
        fixed = self._least == self._most
        for _ in range(self._most if fixed else int(self.unwrapped.np_random.integers(self._least, self._most + 1))):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            frames = [*frames[-1:], obs]
            if terminated or truncated:
                break
        return self._shown(frames), total, terminated, truncated, info

    def _shown(self, frames: list[Observation]) -> Observation:
        """The observation, from the last one or two of the environment."""
        return frames[-1]


class MaxAndSkip(FrameSkip):
    """Frame skip for consoles that draw some things in every second frame: shows the brighter of the last two."""

    def __init__(self, env: gym.Env, skip: int | tuple[int, int] = 4) -> None:
        super().__init__(env, skip)
        if not is_pixels(env.observation_space) or len(env.observation_space.shape or ()) < 2:
            raise ValueError(f"needs images, the observation is {env.observation_space}; frame_skip takes any")

    def _shown(self, frames: list[Observation]) -> Observation:
        return np.maximum(frames[0], frames[-1])


class StopWithoutReward(gym.Wrapper):
    """Truncates an episode after `steps` steps in a row without a positive reward: time for a better one."""

    def __init__(self, env: gym.Env, steps: int) -> None:
        super().__init__(env)
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        self._most, self._waited = steps, 0

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """A new episode."""
        self._waited = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Action) -> StepReturn:
        """A step, possibly the last one."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._waited = 0 if float(reward) > 0 else self._waited + 1
        return obs, reward, terminated, truncated or self._waited >= self._most, info


class FrameStack(gym.Wrapper):
    """The last `frames` observations, oldest first: images along their channels, vectors one after the other.

    An episode begins with its first observation `frames` times.
    """

    def __init__(self, env: gym.Env, frames: int = 4) -> None:
        super().__init__(env)
        space = env.observation_space
        port = observation_conversion(space, "") if is_picture(space) else Conversion(space)
        self._move, self.observation_space = port.convert, _stacked(port.space, frames)
        self._frames = frames
        self._stack = np.zeros(self.observation_space.shape, self.observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin an episode with copies of its first observation."""
        obs, info = self.env.reset(seed=seed, options=options)
        obs = self._move(obs) if self._move else np.asarray(obs)
        self._stack = np.concatenate([obs] * self._frames)
        return self._stack, info

    def step(self, action: Action) -> StepReturn:
        """Step and push the observation."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        obs = self._move(obs) if self._move else np.asarray(obs)
        self._stack = np.concatenate((self._stack[len(obs) :], obs))  # a new array: earlier stacks stay as they are
        return self._stack, reward, terminated, truncated, info

    @classmethod
    def vectorize(cls, venv: VectorEnv, frames: int = 4) -> VectorEnv:
        """The same for a whole vector at once."""
        return _StackedVector(venv, frames)


class _StackedVector(VectorWrapper):
    """Stacks of all environments; after the end of an episode the next stack begins with the new first frame."""

    state = ("stack",)

    def __init__(self, inner: VectorEnv, frames: int) -> None:
        super().__init__(inner, observation_space=_stacked(inner.observation_space, frames))
        self._frames, self._size = frames, (inner.observation_space.shape or ())[0]
        self.stack = np.zeros((self.num_envs, *(self.observation_space.shape or ())), self.observation_space.dtype)

    def reset(self, seeds: Sequence[int]) -> Array:
        """Begin all episodes."""
        self.stack = self.convert(self.inner.reset(seeds))
        return self.stack

    def step(self, action: Array) -> StepResult:
        """Step and push the observations."""
        result = self.inner.step(action)
        before, self.stack = self.stack, self._pushed(self.stack, result.obs)
        if result.final_obs is None:
            return result._replace(obs=self.stack)
        rows = result.done
        self.stack[rows] = self.convert(result.obs[rows])
        return result._replace(obs=self.stack, final_obs=self._pushed(before, result.final_obs))

    def convert(self, obs: Array) -> Array:
        """The first stack of an episode."""
        return np.concatenate([obs] * self._frames, 1)

    def restore(self, state: State) -> Array:
        """Continue from a snapshot."""
        super().restore(state)
        return self.stack

    def _pushed(self, stack: Array, obs: Array) -> Array:
        return np.concatenate((stack[:, self._size :], obs), 1)


def _stacked(space: gym.Space, frames: int) -> Box:
    if frames < 1:
        raise ValueError(f"frames must be at least 1, got {frames}")
    if not isinstance(space, Box) or not space.shape:
        raise ValueError(f"stacks images and vectors, the observation is {space}")
    kind = type(space) if isinstance(space, Image) else Box
    return kind(np.concatenate([space.low] * frames), np.concatenate([space.high] * frames), dtype=space.dtype)


class TimeAware(gym.Wrapper):
    """Appends the elapsed part of the episode's time limit, 0 to 1, to a vector observation.

    It reads the clock of the time limit itself, which also counts the frames that a wrapper in between skips.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        spec = env.spec
        self._limit, self._elapsed = _limit(spec.max_episode_steps if spec else None), 0
        self.observation_space = _extended(env.observation_space)

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin an episode at time 0."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._with_time(obs, 0), info

    def step(self, action: Action) -> StepReturn:
        """Step and append the time."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._with_time(obs, self._elapsed + 1), reward, terminated, truncated, info

    def _with_time(self, obs: Observation, counted: int) -> Observation:
        clock: Any = wrapper_of(self.env, TimeLimit)  # None if the environment keeps its time itself
        self._elapsed = counted if clock is None else int(clock._elapsed_steps)
        return np.append(obs, self._elapsed / self._limit).astype(obs.dtype)

    @classmethod
    def vectorize(cls, venv: VectorEnv) -> VectorEnv:
        """The same for a whole vector at once."""
        return _TimedVector(venv)


class _TimedVector(VectorWrapper):
    state = ("elapsed",)

    def __init__(self, inner: VectorEnv) -> None:
        super().__init__(inner, observation_space=_extended(inner.observation_space))
        self._limit, self.elapsed = _limit(inner.max_episode_steps), np.zeros(inner.num_envs, np.int64)

    def reset(self, seeds: Sequence[int]) -> Array:
        """Begin all episodes at time 0."""
        self.elapsed.fill(0)
        return self.convert(self.inner.reset(seeds))

    def step(self, action: Array) -> StepResult:
        """Step and append the times."""
        result = self.inner.step(action)
        self.elapsed += 1
        final = None if result.final_obs is None else self.convert(result.final_obs)
        self.elapsed[result.done] = 0
        return result._replace(obs=self.convert(result.obs), final_obs=final)

    def convert(self, obs: Array) -> Array:
        """Observations with the time of each environment."""
        return np.concatenate((obs, self.elapsed[:, None] / self._limit), axis=1, dtype=obs.dtype, casting="same_kind")


def _limit(steps: int | None) -> int:
    if steps is None:
        raise ValueError("needs a time limit: set environment.max_episode_steps")
    return steps


def _extended(space: gym.Space) -> Box:
    if not isinstance(space, Box) or len(space.shape) != 1 or space.dtype.kind != "f":
        raise ValueError(f"extends vectors of floats, the observation is {space}")
    low, high = np.append(space.low, 0.0), np.append(space.high, 1.0)
    return Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype)
