"""Problems written for a whole vector at once: one implementation for the single environment and the native backend.

Reading order: Task is what a problem implements; TaskEnv is B = 1 of it for Gymnasium; TaskVectorEnv is any B. All
that is random in an episode is drawn when it begins, from the row's own generator, so both show the same bits. Shapes:
B rows.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from ludus.envs.info import EnvInfo
from ludus.envs.snapshots import NONE, Choice, Refused, generators, trial
from ludus.envs.vector import StepResult, VectorEnv
from ludus.errors import ConfigError
from ludus.types import Array


class Task(abc.ABC):
    """B episodes side by side, in arrays that are overwritten by every step."""

    state: ClassVar[tuple[str, ...]]
    """Attributes, arrays all, from which the steps to come follow."""

    def __init__(self, num: int, observation: gym.Space, action: gym.Space, threshold: float | None = None) -> None:
        self.num, self.observation_space, self.action_space, self.reward_threshold = num, observation, action, threshold
        self.obs = np.zeros((num, *(observation.shape or ())), observation.dtype)
        self.reward = np.zeros(num, np.float32)
        self.terminated, self.truncated = np.zeros((2, num), bool)

    @abc.abstractmethod
    def begin(self, i: int, rng: np.random.Generator) -> None:
        """A new episode in row `i`: its state and its first observation."""

    @abc.abstractmethod
    def step(self, action: Array) -> None:
        """Every row of obs, reward, terminated and truncated after these actions [B]."""

    def save(self) -> dict[str, Array]:
        """The state and the observations, copied."""
        return {name: getattr(self, name).copy() for name in ("obs", *self.state)}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from there."""
        for name in ("obs", *self.state):
            mine: Array = getattr(self, name)
            if np.shape(saved[name]) != mine.shape:
                raise ValueError(f"{name} of shape {np.shape(saved[name])}")
            mine[...] = saved[name]


class TaskEnv(gym.Env):
    """A task of one row. A subclass names its task, `class MazeEnv(TaskEnv, task=Maze)`, and takes its arguments."""

    metadata: dict[str, Any] = {"render_modes": []}
    _task: ClassVar[Callable[..., Task]]

    def __init_subclass__(cls, task: type[Task]) -> None:
        cls._task = task
        _, *parameters = inspect.signature(task, eval_str=True).parameters.values()
        mode = inspect.Parameter("render_mode", inspect.Parameter.KEYWORD_ONLY, default=None)
        cls.__signature__ = inspect.Signature([*parameters, mode])  # type: ignore[attr-defined]

    def __init__(self, render_mode: str | None = None, **arguments: object) -> None:
        self.task = task = type(self)._task(1, **arguments)
        self.render_mode = render_mode
        self.observation_space, self.action_space = task.observation_space, task.action_space
        self.reward_threshold = task.reward_threshold
        self._action = np.zeros(1, np.int64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.task.begin(0, self.np_random)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        task = self.task
        self._action[0] = action
        task.step(self._action)
        return self._seen(), float(task.reward[0]), bool(task.terminated[0]), bool(task.truncated[0]), {}

    def snapshot_state(self) -> dict[str, Any]:
        """Of the task; what is random is drawn from `np_random`."""
        return dict(self.task.save())

    def restore_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.task.load(state)

    def _seen(self) -> Any:
        obs = self.task.obs[0]
        return obs.copy() if obs.shape else int(obs)


class TaskVectorEnv(VectorEnv):
    """A task of B rows; equal to B single environments bit for bit."""

    backend = "native"

    def __init__(self, info: EnvInfo, num_envs: int, make: Callable[[int], Task]) -> None:
        super().__init__(info, num_envs)
        self._make, self._task = make, make(num_envs)
        self._final_obs = np.zeros_like(self._task.obs)
        self._done = np.zeros(num_envs, bool)
        self.raw_reward = self._task.reward
        self._clock, self._began = 0, np.zeros(num_envs, np.int64)
        self._random: list[np.random.Generator] = []

    def reset(self, seeds: Sequence[int]) -> Array:
        self._random = [gym.utils.seeding.np_random(int(seed))[0] for seed in seeds]
        self._clock = 0
        for i in range(self.num_envs):
            self._begin(i)
        return self._task.obs

    def step(self, action: Array) -> StepResult:
        task, done = self._task, self._done
        task.step(action)
        self._clock += 1
        if self.max_episode_steps is not None:
            task.truncated |= self._clock - self._began >= self.max_episode_steps
        np.logical_or(task.terminated, task.truncated, done)
        final = None
        if np.count_nonzero(done):
            final = self._final_obs
            final[...] = task.obs
            for i in np.flatnonzero(done).tolist():
                self._begin(i)
        return StepResult(task.obs, task.reward, task.terminated, task.truncated, final)

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        raise ConfigError("render_mode", f"'{self.id}' has nothing to show", "play it unseen")

    def _begin(self, i: int) -> None:
        self._task.begin(i, self._random[i])
        self._began[i] = self._clock

    def _snapshot(self) -> dict[str, Any]:
        random = [generators.pack(generator) for generator in self._random]
        return {"task": self._task.save(), "clock": self._clock, "began": self._began.copy(), "random": random}

    def _restore(self, state: dict[str, Any]) -> Array:
        self._task.load(state["task"])
        self._clock, self._began[...] = state["clock"], state["began"]
        self._random = [generators.unpack("generator", packed) for packed in state["random"]]
        return self._task.obs

    def _choose(self) -> Choice:
        rung = "api"

        def make() -> TaskVectorEnv:
            env = TaskVectorEnv(self.info, 4, self._make)
            env._rung = rung
            return env

        try:
            trial.vector_resumes(make)
        except Refused as reason:
            return Choice(NONE, {rung: str(reason)})
        return Choice(rung, {})
