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
from ludus.envs.snapshots import NONE, UNSAVED, Choice
from ludus.errors import DataError, EnvironmentFailed
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


class Unsuited(Exception):
    """Why an environment cannot run natively."""


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
    continues: Array | None = None
    """bool [B] after a step in which an episode ended for the learner only (a lost life), else None.

    Such a row reads terminated and its obs begins an episode like any other, but the game goes on: statistics and
    evaluations count on, up to the end of the game.
    """
    refused: dict[str, str] = {}
    """Rungs above `rung` and why they do not hold; filled when `rung` has been asked for."""
    _rung: str | None = None

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

    @property
    def rung(self) -> str:
        """How the state is saved: api, adapter, pickle, replay; barrier or none: not at all (`ludus.envs.snapshots`).

        The first call does the self-test. Make it before the reset after which snapshots are wanted: from then on
        `replay` remembers actions, and with `barrier` every reset begins in new environments, so that all that
        follows it depends on the seeds and the actions alone.
        """
        if self._rung is None:
            self._rung, self.refused = self._choose()
        return self._rung

    def choose_snapshot_method(self) -> str:
        """Do the self-test of `rung` now, before the next reset, and return the method it found."""
        return self.rung

    @abc.abstractmethod
    def reset(self, seeds: Sequence[int]) -> Array:
        """First observations [B, ...] of new episodes; one seed per environment."""

    @abc.abstractmethod
    def step(self, action: Array) -> StepResult:
        """One step of every environment; Box actions are clipped to the finite bounds in a copy."""

    @abc.abstractmethod
    def render(self, index: int = 0, *, final: bool = False) -> Array:
        """uint8 [H, W, 3] of one environment; `final`: the last frame of the episode that has just ended."""

    def over(self, done: Array) -> Array:
        """bool [B]: of the episodes that are `done` after a step, those whose game is over, too. Count these."""
        return done if self.continues is None else done & ~self.continues

    def snapshot(self) -> dict[str, Any]:
        """All that the steps to come follow from, as `ludus.runs.tree` can store it; in memory of its own."""
        if self.rung in UNSAVED:
            raise EnvironmentFailed(self.id, f"its state cannot be saved (rung '{self.rung}')", "reset it instead")
        return {"id": self.id, "rung": self.rung, "num_envs": self.num_envs, **self._snapshot()}

    def restore(self, state: dict[str, Any]) -> Array:
        """Go on from a snapshot of environments made alike; the observations [B, ...] the policy sees next."""
        where = f"snapshot of {self.id}"
        for name, mine in (("id", self.id), ("rung", self.rung), ("num_envs", self.num_envs)):
            if state.get(name) != mine:
                why = self.refused.get(state[name]) if name == "rung" and isinstance(state.get(name), str) else None
                problem = f"its {name} is {state.get(name)!r}, here it is {mine!r}" + (f", since {why}" if why else "")
                raise DataError(where, problem, "resume with the config and the packages it was saved with")
        try:
            return self._restore(state)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            problem = f"it does not fit: {type(error).__name__}: {error}"
            raise DataError(where, problem, "resume an older checkpoint") from error

    def close(self) -> None:  # noqa: B027 - nothing to do unless a backend holds something
        """Free everything; calling it twice is fine."""

    def _choose(self) -> Choice:
        """The self-test."""
        return Choice(NONE, {})

    def _snapshot(self) -> dict[str, Any]:
        """A backend's own part; called only if `_choose` found a rung that saves."""
        raise AssertionError(self.backend)

    def _restore(self, state: dict[str, Any]) -> Array:
        raise AssertionError(self.backend)

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class CountsLives(VectorEnv):
    """One that knows how many lives are left; what it returns may be written to."""

    lives: Array
    """int [B] after a reset or step, of the game that `obs` is of; 0 where nobody counts."""
