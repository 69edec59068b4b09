"""Steps environments one after the other and writes into VectorArrays: SyncVectorEnv here, or inside a worker."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from ludus.envs.check import misfit
from ludus.envs.deadline import Within, close, frame, raised
from ludus.envs.snapshots import NONE, Keeper, Refused, SnapshotChoice, ladder
from ludus.envs.spaces import EnvInfo, wrapper_of
from ludus.envs.suites.walkers import quick_step
from ludus.envs.vector import VectorEnv
from ludus.envs.vector.buffers import ActionClipper, VectorArrays
from ludus.envs.wrappers.atari import EpisodicLife
from ludus.envs.wrappers.rewards import RawReward
from ludus.errors import ConfigError, DataError, EnvironmentFailed, LudusError
from ludus.types import Array, State, StepResult, Tree, tree_index, tree_set

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe


class Stepper:
    """Owns environments; `step` is the same code for every backend, so equal seeds give equal bits."""

    def __init__(
        self, envs: Sequence[gym.Env], arrays: VectorArrays, id: str, first: int = 0, deadline: float = math.inf
    ) -> None:
        self.arrays, self.id, self.first, self.deadline = arrays, id, first, deadline
        self._take(envs)
        self._discrete = isinstance(self.envs[0].action_space, gym.spaces.Discrete)
        self._obs = [[tree_index(side, (i, ...)) for i in range(len(self.envs))] for side in arrays.sides]
        self._final = [tree_index(arrays.final_obs, (i, ...)) for i in range(len(self.envs))]
        self._flat, self._flat_final = [_views(rows) for rows in self._obs], _views(self._final)
        self._whole: Any = slice(None) if getattr(self._final[0], "ndim", 0) else ()  # index of a whole row
        self._frames: dict[int, Array] | None = {} if self.envs[0].render_mode == "rgb_array" else None
        self._cursor = arrays.cursor.data  # a memoryview: cheaper to write to
        self._cursor[0] = -1
        self._keeper: Keeper | None = None
        self._used = False

    def reset(self, side: int) -> None:
        """Begin new episodes with the stored seeds."""
        if self._used and self._keeper is not None and self._keeper.renews:
            self.close()
            self._take([self._keeper.make() for _ in self.envs])
        self._used = True
        i = -1
        try:
            for i, env in enumerate(self.envs):
                self._cursor[0] = i
                with self._deadlines[i]:
                    observation = env.reset(seed=int(self.arrays.seed[i]))[0]
                self._write(i, observation, self._obs[side][i])
            for meter in self._raw:
                meter.take()
        except BaseException as error:  # whatever an environment raises is named, with its traceback
            raise self._failed(i, "reset", error) from error
        self._cursor[0] = -1

    def step(self, side: int) -> bool:
        """Step every environment with the stored actions and reset those that finished; True if one did."""
        arrays, obs, cursor, raw = self.arrays, self._flat[side], self._cursor, self._raw
        reward: Any = arrays.reward.data
        whole, terminated, truncated = self._whole, arrays.terminated, arrays.truncated
        terminated.fill(False)
        truncated.fill(False)
        if self._lives:
            arrays.continues.fill(False)
        # Rows of a copy: an environment may keep or change the action it is given.
        actions = arrays.action.tolist() if self._discrete else list(arrays.action.copy())
        finished = False
        i = -1
        try:
            for i, step in enumerate(self._steps):
                cursor[0] = i
                observation, paid, ended, cut, _ = step(actions[i])
                try:
                    reward[i] = paid
                except TypeError:  # a memoryview takes nothing but numbers
                    raise self._wrong(i, f"the reward {type(paid).__name__} {str(paid)[:40]}, not a number") from None
                if raw:
                    arrays.raw_reward[i] = raw[i].take()
                if ended or cut:
                    finished = True
                    terminated[i], truncated[i] = ended, cut
                    if self._lives:
                        arrays.continues[i] = self._lives[i].life_lost
                    observation = self._begin_again(i, observation)
                try:
                    obs[i][whole] = observation
                except (TypeError, ValueError):
                    self._write(i, observation, self._obs[side][i])
        except BaseException as error:  # as in reset
            raise self._failed(i, "step", error) from error
        cursor[0] = -1
        if not self._raw:
            arrays.raw_reward[:] = arrays.reward
        return finished

    def render(self, i: int, final: bool) -> Array:
        """A frame of one environment, of now or of the end of its last episode."""
        if self._frames is None:
            raise ConfigError("render_mode", "the environments were not made for rendering", "use 'rgb_array'")
        if final and i in self._frames:
            return self._frames[i]
        return frame(self.envs[i], self.id)

    def surround(self, wrap: Callable[[gym.Env], gym.Env]) -> None:
        """Put something around every environment."""
        self._take([wrap(env) for env in self.envs])

    def watch(self, keeper: Keeper) -> None:
        """From now on `keeper` saves and restores the environments."""
        self._keeper = keeper
        self._take([keeper.attach(env) for env in self.envs])

    def snapshot(self) -> list[State]:
        """The state of every environment."""
        assert self._keeper is not None
        states: list[State] = []
        try:
            for env in self.envs:
                states.append(self._keeper.capture(env))  # noqa: PERF401 - the length tells which one failed
        except Refused as error:
            where = f"environment {self.first + len(states)} ({self.id})"
            raise EnvironmentFailed(where, f"its state cannot be saved: {error}", "reset it instead") from error
        except BaseException as error:  # as in reset
            raise self._failed(len(states), "saving it", error) from error
        return states

    def restore(self, states: Sequence[State]) -> None:
        """Replace the environments by new ones with these states."""
        assert self._keeper is not None
        if len(states) != len(self.envs):
            raise DataError(f"snapshot of {self.id}", f"it holds {len(states)} of {len(self.envs)} environments")
        self.close()
        i = -1
        try:
            for i, state in enumerate(states):
                self.envs[i] = self._keeper.restore(state)
        except LudusError:
            raise
        except Exception as error:  # the state or the environment: both are named
            problem = f"environment {self.first + i} cannot be restored: {type(error).__name__}: {error}"
            raise DataError(f"snapshot of {self.id}", problem, "resume with what it was saved with") from error
        self._take(self.envs)
        self._used = True

    def close(self) -> None:
        """Close every environment; then raise the first failure, if there was one."""
        failures: list[EnvironmentFailed] = []
        for i, env in enumerate(self.envs):
            try:
                close(env, self._about(i), self.deadline)
            except EnvironmentFailed as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def _take(self, envs: Sequence[gym.Env]) -> None:
        self.envs = list(envs)
        self._deadlines = [Within(self.deadline, partial(self._about, i), "reset") for i in range(len(self.envs))]
        self._steps = [quick_step(env) or env.step for env in self.envs]
        self._raw = [meter for env in self.envs if (meter := wrapper_of(env, RawReward)) is not None]
        self._lives = [lives for env in self.envs if (lives := wrapper_of(env, EpisodicLife)) is not None]

    def _begin_again(self, i: int, last: Tree) -> Tree:
        try:
            self._flat_final[i][self._whole] = last
        except (TypeError, ValueError):
            self._write(i, last, self._final[i])
        if self._frames is not None:
            self._frames[i] = frame(self.envs[i], self.id)
        with self._deadlines[i]:
            observation = self.envs[i].reset()[0]
        if self._raw and not self.arrays.continues[i]:
            self._raw[i].take()  # rewards of steps that a wrapper took inside reset are no part of the episode
        return observation

    def _write(self, i: int, observation: Tree, row: Tree) -> None:
        """Check kind, shape and dtype first: numpy would cast and broadcast without a word."""
        problem = misfit(self.envs[i].observation_space, observation)
        if problem:
            raise self._wrong(i, f"an observation that {problem}")
        tree_set(row, ..., observation)

    def _wrong(self, i: int, what: str) -> EnvironmentFailed:
        return EnvironmentFailed(self._about(i), f"step or reset returned {what}", "fix the environment or wrap it")

    def _failed(self, i: int, verb: str, error: BaseException) -> EnvironmentFailed:
        return raised(self._about(i), verb, error)

    def _about(self, i: int) -> str:
        return f"environment {self.first + i} ({self.id}, seed {self.arrays.seed[i]})"


def _views(rows: Sequence[Tree]) -> list[Any]:
    """Memoryviews, fast to write and strict about dtype and shape; None for images and trees, which have none."""
    return [row.data if isinstance(row, np.ndarray) and row.ndim < 2 else None for row in rows]


def require_equal_spaces(envs: Sequence[gym.Env | EnvInfo], id: str) -> None:
    """Environments of one vector must be alike."""
    first = envs[0]
    for i, env in enumerate(envs):
        if (env.observation_space, env.action_space) != (first.observation_space, first.action_space):
            problem = f"'{id}' made environments with different spaces (number {i} differs from the first)"
            raise ConfigError("environment.id", problem, "fix its spaces with environment.kwargs")


class SyncVectorEnv(VectorEnv):
    """Environments in this process, one after the other."""

    backend = "sync"

    def __init__(self, recipe: Recipe, num_envs: int) -> None:
        envs = [recipe.make() for _ in range(num_envs)]
        info = recipe.facts(envs[0])
        require_equal_spaces(envs, info.id)
        super().__init__(info, num_envs)
        self._recipe = recipe
        self._arrays = VectorArrays.build(info, num_envs)
        self._stepper = Stepper(envs, self._arrays, info.id, deadline=recipe.deadline)
        self._clipper = ActionClipper(info.action_space)
        self._side, self._closed = 0, False

    def reset(self, seeds: Sequence[int]) -> Tree:
        self._arrays.seed[:] = seeds
        self._side ^= 1
        self._stepper.reset(self._side)
        return self._arrays.sides[self._side]

    def step(self, action: Array) -> StepResult:
        arrays = self._arrays
        self._clipper.write(action, arrays.action)
        self._side ^= 1
        finished = self._stepper.step(self._side)
        return arrays.result(self._side, finished)

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        return self._stepper.render(index, final)

    def surround(self, wrap: Callable[[gym.Env], gym.Env]) -> None:
        """Put a wrapper around every environment, for who wants to see what a policy does not: call it before reset."""
        self._stepper.surround(wrap)

    def _snapshot(self) -> State:
        return {**self._arrays.saved(self._side), "envs": self._stepper.snapshot()}

    def _restore(self, state: State) -> Tree:
        self._stepper.restore(state["envs"])
        return self._arrays.restored(state, self._side)

    def _choose(self) -> SnapshotChoice:
        choice = ladder.choose(self._recipe)
        if choice.method != NONE:
            self._stepper.watch(ladder.keeper(choice.method, self._recipe))
        return choice

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stepper.close()
