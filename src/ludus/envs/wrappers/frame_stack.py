"""The last observations as one, so that speeds become visible."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs import Action, Options, ResetReturn, StepReturn
from ludus.envs.spaces import Conversion, Image, is_picture, observation_conversion
from ludus.envs.vector import VectorEnv
from ludus.envs.vector.vector_wrapper import VectorWrapper
from ludus.errors import DataError
from ludus.types import Array, State, StepResult


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

    def __init__(self, inner: VectorEnv, frames: int) -> None:
        super().__init__(inner, _stacked(inner.observation_space, frames))
        self._frames, self._size = frames, (inner.observation_space.shape or ())[0]
        self._stack = np.zeros((self.num_envs, *(self.observation_space.shape or ())), self.observation_space.dtype)

    def reset(self, seeds: Sequence[int]) -> Array:
        """Begin all episodes."""
        self._stack = self.convert(self.inner.reset(seeds))
        return self._stack

    def step(self, action: Array) -> StepResult:
        """Step and push the observations."""
        result = self.inner.step(action)
        before, self._stack = self._stack, self._pushed(self._stack, result.obs)
        if result.final_obs is None:
            return result._replace(obs=self._stack)
        rows = result.done
        self._stack[rows] = self.convert(result.obs[rows])
        return result._replace(obs=self._stack, final_obs=self._pushed(before, result.final_obs))

    def convert(self, obs: Array) -> Array:
        """The first stack of an episode."""
        return np.concatenate([obs] * self._frames, 1)

    def snapshot(self) -> State:
        """The state of the environments and the stacks."""
        return {"inner": self.inner.snapshot(), "stack": self._stack.copy()}

    def restore(self, state: State) -> Array:
        """Continue from a snapshot."""
        if np.shape(state.get("stack", ())) != self._stack.shape:
            where, remedy = f"snapshot of {self.id}", "resume with the config it was saved with"
            raise DataError(where, "its frames do not fit", remedy)
        self.inner.restore(state["inner"])
        self._stack = np.array(state["stack"], self._stack.dtype)
        return self._stack

    def _pushed(self, stack: Array, obs: Array) -> Array:
        return np.concatenate((stack[:, self._size :], obs), 1)


def _stacked(space: gym.Space, frames: int) -> Box:
    if frames < 1:
        raise ValueError(f"frames must be at least 1, got {frames}")
    if not isinstance(space, Box) or not space.shape:
        raise ValueError(f"stacks images and vectors, the observation is {space}")
    kind = type(space) if isinstance(space, Image) else Box
    return kind(np.concatenate([space.low] * frames), np.concatenate([space.high] * frames), dtype=space.dtype)
