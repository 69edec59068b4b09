"""Problems written for a whole vector at once: one implementation for the single environment and the native backend.

Reading order: a problem implements VectorTask; TaskEnv is one row of it for Gymnasium; TaskVectorEnv is B rows. A row
draws from its own generator only, and only when an episode begins, so both are equal to the bit. Shapes: B rows.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from ludus.envs import Frame
from ludus.envs.snapshots import SnapshotChoice, trial
from ludus.envs.snapshots.values import pack_generator, unpack_generator
from ludus.envs.spaces import EnvInfo
from ludus.envs.suites import register
from ludus.envs.vector import VectorEnv
from ludus.errors import ConfigError
from ludus.types import Array, State, StepResult, Tree, tree_index, tree_map, zeros


class VectorTask(abc.ABC):
    """B episodes side by side, in arrays that every step overwrites."""

    state: ClassVar[tuple[str, ...]]
    """Names of the attributes, all arrays, that later steps depend on."""
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    """What it can show, as Gymnasium has it; a task with `rgb_array` implements `frame`."""

    def __init__(self, num: int, observation: gym.Space, action: gym.Space, threshold: float | None = None) -> None:
        self.num, self.observation_space, self.action_space, self.reward_threshold = num, observation, action, threshold
        self.obs = zeros(observation, num)
        self.reward = np.zeros(num, np.float32)
        self.ended = np.zeros((2, num), bool)
        self.terminated, self.truncated = self.ended

    @abc.abstractmethod
    def begin(self, i: int, rng: np.random.Generator) -> None:
        """A new episode in row `i`: its state and its first observation."""

    @abc.abstractmethod
    def step(self, action: Array) -> None:
        """Every row of obs, reward, terminated and truncated after these actions [B]."""

    def frame(self, obs: Tree) -> Array:
        """uint8 [H, W, 3] of a row that shows `obs`."""
        raise AssertionError(self.metadata)

    def save(self) -> State:
        """Copies of the state and the observations."""
        return {name: tree_map(np.copy, getattr(self, name)) for name in ("obs", *self.state)}

    def load(self, saved: State) -> None:
        """Go on from a saved state."""

        def write(mine: Array, value: Array) -> None:
            if np.shape(value) != mine.shape:
                raise ValueError(f"{name} of shape {np.shape(value)}")
            mine[...] = value

        for name in ("obs", *self.state):
            tree_map(write, getattr(self, name), saved[name])


class TaskEnv(gym.Env):
    """A task of one row."""

    def __init__(self, task: VectorTask, render_mode: str | None = None) -> None:
        self.task, self.render_mode, self.metadata = task, render_mode, task.metadata
        self.observation_space, self.action_space = task.observation_space, task.action_space
        self.reward_threshold = task.reward_threshold
        self._action = zeros(task.action_space, 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.task.begin(0, self.np_random)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        task = self.task
        self._action[0] = action
        task.step(self._action)
        return self._seen(), float(task.reward[0]), bool(task.terminated[0]), bool(task.truncated[0]), {}

    def render(self) -> Frame:
        return self.task.frame(tree_index(self.task.obs, 0))

    def snapshot_state(self) -> State:
        """State of the task; all random numbers come from `np_random`."""
        return self.task.save()

    def restore_state(self, state: State) -> None:
        """Go on from a saved state."""
        self.task.load(state)

    def _seen(self) -> Tree:
        return tree_map(lambda leaf: leaf.copy() if leaf.shape else int(leaf), tree_index(self.task.obs, 0))


class SingleTask:
    """Gymnasium's entry point for one row of a task; it takes the arguments of the task."""

    def __init__(self, task: type[VectorTask]) -> None:
        self.creator, self.metadata = task, task.metadata
        _, *parameters = inspect.signature(task, eval_str=True).parameters.values()
        self.__signature__ = inspect.Signature(parameters)

    def __call__(self, render_mode: str | None = None, **arguments: Any) -> TaskEnv:
        """Make one environment."""
        return TaskEnv(self.creator(1, **arguments), render_mode)


def register_task(id: str, task: type[VectorTask], **fields: Any) -> None:
    """Register a task with Gymnasium, as a single environment and as a vector."""
    register(id, SingleTask(task), vector_entry_point=f"{task.__module__}:{task.__name__}", **fields)


class TaskVectorEnv(VectorEnv):
    """A task of B rows; equal to B single environments bit for bit."""

    backend, saved_by = "native", "api"

    def __init__(self, info: EnvInfo, num_envs: int, make: Callable[[int], VectorTask]) -> None:
        super().__init__(info, num_envs)
        self._make, self._task = make, make(num_envs)
        self._final_obs = tree_map(np.zeros_like, self._task.obs)
        self._limit, self._clock, self._began = info.max_episode_steps or 2**62, 0, np.zeros(num_envs, np.int64)
        self._next_limit, self._late = 0, False
        self._random: list[np.random.Generator] = []

    def reset(self, seeds: Sequence[int]) -> Tree:
        self._random = [gym.utils.seeding.np_random(int(seed))[0] for seed in seeds]
        self._clock = 0
        self._begin(range(self.num_envs))
        return self._task.obs

    def step(self, action: Array) -> StepResult:
        task, final = self._task, None
        if self._late:
            task.truncated.fill(False)
        task.step(action)
        self._clock += 1
        self._late = self._clock >= self._next_limit
        if self._late:
            task.truncated |= self._clock - self._began >= self._limit
        if np.count_nonzero(task.ended):
            final = self._final_obs
            tree_map(np.copyto, final, task.obs)
            self._begin(np.flatnonzero(task.terminated | task.truncated).tolist())
        return StepResult(task.obs, task.reward, task.terminated, task.truncated, final, task.reward)

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        if not self._task.metadata["render_modes"]:
            raise ConfigError("render_mode", f"'{self.id}' has nothing to show", "play it unseen")
        return self._task.frame(tree_index(self._final_obs if final else self._task.obs, index))

    def _begin(self, rows: Iterable[int]) -> None:
        for i in rows:
            self._task.begin(i, self._random[i])
            self._began[i] = self._clock
        self._next_limit = int(self._began.min()) + self._limit

    def _snapshot(self) -> State:
        random = [pack_generator(generator) for generator in self._random]
        return {"task": self._task.save(), "clock": self._clock, "began": self._began.copy(), "random": random}

    def _restore(self, state: State) -> Tree:
        self._task.load(state["task"])
        self._clock, self._began[...] = int(state["clock"]), state["began"]
        self._next_limit, self._late = int(self._began.min()) + self._limit, True
        self._random = [unpack_generator("generator", state["random"][i]) for i in range(self.num_envs)]
        return self._task.obs

    def _choose(self) -> SnapshotChoice:
        return trial.vector_choice(self.saved_by, lambda: type(self)(self.info, 4, self._make))
