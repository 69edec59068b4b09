"""The one contract of vector environments, whatever the backend.

Same-step autoreset: where an episode ended, `obs` is already the first observation of the next one and `final_obs` the
true last observation of the old one. `terminated` and `truncated` stay apart; both may be true (callers treat that as
termination). No reset transition ever appears. Observations are trees: an array for a Box, a dict or tuple of arrays
for a Dict or Tuple of Boxes. Shapes: B environments.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ludus.envs.snapshots import NONE, UNSAVED, SnapshotChoice
from ludus.envs.spaces import EnvInfo
from ludus.errors import DataError, EnvironmentFailed
from ludus.types import Array, State, StepResult, Tree


class Unsuited(Exception):
    """Why an environment cannot run natively."""


class VectorEnv(abc.ABC):
    """B environments stepped together."""

    backend: str
    snapshot_method: str | None = None
    """How the state is saved: api, adapter, pickle or replay; barrier or none: it is not (`ludus.envs.snapshots`).

    None until `choose_snapshot_method` was called.
    """
    refused: dict[str, str] = {}
    """Better methods than `snapshot_method`, each with the reason why it does not work here."""
    slow: float = 0.0
    """Seconds of a step, where they are so many that the self-test of `snapshot_method` was short."""

    def __init__(self, info: EnvInfo, num_envs: int) -> None:
        """The spaces are those of ONE environment; actions: Discrete from 0, or one-dimensional."""
        self.info, self.num_envs, self.id = info, num_envs, info.id
        self.observation_space, self.action_space = info.observation_space, info.action_space
        self.reward_threshold, self.max_episode_steps = info.reward_threshold, info.max_episode_steps

    def choose_snapshot_method(self) -> str:
        """Find out how the state can be saved, by a self-test; later calls return the same answer.

        Call it before the reset from which on snapshots are wanted: from then on `replay` records actions, and with
        `barrier` every reset makes new environments, so that all later steps depend on seeds and actions alone.
        """
        if self.snapshot_method is None:
            self.snapshot_method, self.refused, self.slow = self._choose()
        return self.snapshot_method

    @abc.abstractmethod
    def reset(self, seeds: Sequence[int]) -> Tree:
        """First observations [B, ...] of new episodes; one seed per environment."""

    @abc.abstractmethod
    def step(self, action: Array) -> StepResult:
        """One step of every environment; Box actions are clipped to the finite bounds in a copy."""

    @abc.abstractmethod
    def render(self, index: int = 0, *, final: bool = False) -> Array:
        """uint8 [H, W, 3] of one environment; `final`: the last frame of the episode that has just ended."""

    def snapshot(self) -> State:
        """A copy of everything that later steps depend on, in a form that `ludus.archive.tree` can store."""
        method = self.choose_snapshot_method()
        if method in UNSAVED:
            problem = f"its state cannot be saved (snapshot method '{method}')"
            raise EnvironmentFailed(self.id, problem, "reset it instead")
        return {"id": self.id, "snapshot_method": method, "num_envs": self.num_envs, **self._snapshot()}

    def restore(self, state: State) -> Tree:
        """Go on from a snapshot of equal environments; returns the observations [B, ...] the policy sees next."""
        where, method = f"snapshot of {self.id}", self.choose_snapshot_method()
        for name, mine in (("id", self.id), ("snapshot_method", method), ("num_envs", self.num_envs)):
            found = state.get(name)
            if found != mine:
                why = self.refused.get(found) if name == "snapshot_method" and isinstance(found, str) else None
                problem = f"its {name} is {found!r}, here it is {mine!r}" + (f", since {why}" if why else "")
                raise DataError(where, problem, "resume with the config and the packages it was saved with")
        try:
            return self._restore(state)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            problem = f"it does not fit: {type(error).__name__}: {error}"
            raise DataError(where, problem, "resume an older checkpoint") from error

    def close(self) -> None:  # noqa: B027 - nothing to do unless a backend holds something
        """Free everything; calling it twice is fine."""

    def _choose(self) -> SnapshotChoice:
        """The self-test."""
        return SnapshotChoice(NONE, {})

    def _snapshot(self) -> State:
        """The backend's part of a snapshot; called only if `_choose` found a method that saves."""
        raise AssertionError(self.backend)

    def _restore(self, state: State) -> Tree:
        raise AssertionError(self.backend)

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class VectorWrapper(VectorEnv):
    """The base of wrappers around a whole vector environment; `spaces` are the ones it changes."""

    state: tuple[str, ...] = ()
    """Names of its own arrays that later steps depend on."""

    def __init__(self, inner: VectorEnv, **spaces: Any) -> None:
        super().__init__(replace(inner.info, **spaces), inner.num_envs)
        self.inner, self.backend = inner, inner.backend

    def convert(self, obs: Tree) -> Tree:
        """[B, ...] of the inner environment as [B, ...] of this one, in new arrays if it changes them."""
        return obs

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
        self.refused, self.slow = self.inner.refused, self.inner.slow
        return method

    def snapshot(self) -> State:
        own = {name: getattr(self, name).copy() for name in self.state}
        return {"inner": self.inner.snapshot(), **own} if own else self.inner.snapshot()

    def restore(self, state: State) -> Tree:
        if any(np.shape(state.get(name, ())) != getattr(self, name).shape for name in self.state):
            problem, remedy = "the state of its wrappers does not fit", "resume with the config it was saved with"
            raise DataError(f"snapshot of {self.id}", problem, remedy)
        obs = self.inner.restore(state["inner"] if self.state else state)
        for name in self.state:
            getattr(self, name)[...] = state[name]
        return self.convert(obs)

    def close(self) -> None:
        self.inner.close()
