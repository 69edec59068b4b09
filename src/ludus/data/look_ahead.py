"""Environments step while the learner learns: the first step of a rollout is under way before it is asked for.

When a rollout is done the next action is chosen at once and a thread takes it to the environments. Acting stays where
it was, in the caller's thread and before the update, so that nothing depends on who is faster: a run is as reproducible
as one that waits, and its checkpoints hold the step that was under way.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ludus.data.collector import Acts, Collector, Told
from ludus.data.rollout import Rollout
from ludus.types import Acted, Array, Tree

if TYPE_CHECKING:
    from ludus.envs.vector import StepResult, VectorEnv

RESULT = ("obs", "reward", "terminated", "truncated", "final_obs")
TOLD = ("raw_reward", "broken", "continues")


class _Ahead(NamedTuple):
    """A step that is under way."""

    acted: Acted
    result: Future[StepResult]
    told: Told


class LookAheadCollector(Collector):
    """Begins the first step of the next rollout as soon as one is done."""

    _ahead: _Ahead | None = None
    _thread: ThreadPoolExecutor | None = None

    def collect(self, behaviour: Acts, steps: int) -> Rollout:
        rollout = super().collect(behaviour, steps)
        obs = self._raw_obs if self.normalizer is None else self.normalizer.apply(self._raw_obs)
        acted = self._decide(behaviour, obs, self.state, self.first, 0)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "environments")
        self._ahead = _Ahead(acted, self._thread.submit(self.env.step, acted.env_action), self.env)
        return rollout

    def _step(self, behaviour: Acts, obs: Array, state: Tree, first: Array, t: int) -> tuple[Acted, StepResult]:
        if self._ahead is None:
            self._told = self.env
            return super()._step(behaviour, obs, state, first, t)
        ahead, self._ahead = self._ahead, None
        result = ahead.result.result()
        self._told = ahead.told
        return ahead.acted, result

    def _forget(self) -> None:
        """Wait for the step under way, and leave it out: its environments are about to begin anew."""
        if self._ahead is not None:
            self._ahead.result.exception()
            self._ahead = None

    def switch(self, env: VectorEnv, seeds: list[int]) -> None:
        self._forget()
        super().switch(env, seeds)

    def barrier(self, seeds: list[int]) -> None:
        self._forget()
        super().barrier(seeds)

    def close(self) -> None:
        self._forget()
        if self._thread is not None:
            self._thread.shutdown()
        super().close()

    # ---- saving ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The same and the step under way, with its result: the environments are saved after it."""
        if self._ahead is None:
            return {**super().state_dict(), "ahead": None}
        result, told, acted = self._ahead.result.result(), self._ahead.told, self._ahead.acted
        ahead = {"action": acted.action, "memory": acted.state, "extras": acted.extras}
        ahead |= {name: _copied(getattr(result, name)) for name in RESULT}
        ahead |= {name: _copied(getattr(told, name)) for name in TOLD}
        return {**super().state_dict(), "ahead": ahead}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._forget()
        super().load_state_dict(state)
        if state["ahead"] is not None:
            ahead = _Saved(state["ahead"])
            done: Future[Any] = Future()
            done.set_result(ahead)
            acted = Acted(ahead.action, ahead.action, state["ahead"]["memory"], state["ahead"]["extras"])
            self._ahead = _Ahead(acted, done, ahead)


class _Saved:
    """A step that had been taken when the state was saved: its result, and what the environments told about it."""

    action: Array
    raw_reward: Array
    broken: Array | None
    continues: Array | None

    def __init__(self, state: dict[str, Any]) -> None:
        for name in ("action", *RESULT, *TOLD):
            setattr(self, name, _copied(state[name]))

    def over(self, done: Array) -> Array:
        return done if self.continues is None else done & ~self.continues


def _copied(array: Array | None) -> Any:
    return None if array is None else np.array(array)
