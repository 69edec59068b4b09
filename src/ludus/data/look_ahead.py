"""Environments step while the learner learns: the first step of a rollout begins when the rollout before it ends.

When a rollout is done, the next action is chosen at once and a thread steps the environments with it. The policy acts
in the caller's thread, before the update, so that nothing depends on which thread is faster: a run is as reproducible
as one without look-ahead, and its checkpoints hold the step that was under way.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ludus.config.schema import ExperimentConfig
from ludus.data.collector import Acts, Collector
from ludus.data.rollout import Rollout
from ludus.errors import ConfigError
from ludus.registry import ALGORITHMS
from ludus.types import Acted, Array, State, StepResult, Tree, tree_map

if TYPE_CHECKING:
    from ludus.envs.vector import VectorEnv


class _Ahead(NamedTuple):
    """A step that is under way."""

    acted: Acted
    result: Future[StepResult]


def collector_class(config: ExperimentConfig) -> type[Collector]:
    """Which one collects; looking ahead means acting by a policy that learns at the same time."""
    if config.runtime.overlap and not ALGORITHMS[config.algorithm.name].off_policy:
        problem = f"{config.algorithm.name} learns from its newest policy's actions only"
        raise ConfigError("runtime.overlap", problem, "set it to false, or use dqn, sac or td3")
    return LookAheadCollector if config.runtime.overlap else Collector


class LookAheadCollector(Collector):
    """Begins the first step of the next rollout as soon as one is done."""

    _ahead: _Ahead | None = None
    _thread: ThreadPoolExecutor | None = None

    def collect(self, behaviour: Acts, steps: int) -> Rollout:
        rollout = super().collect(behaviour, steps)
        obs = self.newest_obs if self.normalizer is None else self.normalizer.apply(self.newest_obs)
        acted = self._decide(behaviour, obs, self.state, self.first, 0)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "environments")
        self._ahead = _Ahead(acted, self._thread.submit(self.env.step, acted.env_action))
        return rollout

    def _step(self, behaviour: Acts, obs: Tree, state: Tree, first: Array, t: int) -> tuple[Acted, StepResult]:
        if self._ahead is None:
            return super()._step(behaviour, obs, state, first, t)
        ahead, self._ahead = self._ahead, None
        return ahead.acted, ahead.result.result()

    def _forget(self) -> None:
        """Wait for the step under way and drop it, because the environments are about to be reset."""
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

    def state_dict(self) -> State:
        """The same, and the step under way with its result: the environments are saved after it."""
        if self._ahead is None:
            return {**super().state_dict(), "ahead": None}
        done = self._ahead.result.result()  # first: environments cannot be saved while they step
        result = {name: _copied(value) for name, value in done._asdict().items()}
        return {**super().state_dict(), "ahead": {"acted": self._ahead.acted._asdict(), "result": result}}

    def load_state_dict(self, state: State) -> None:
        self._forget()
        super().load_state_dict(state)
        saved = state["ahead"]
        if saved is not None and state["env"] is not None:  # otherwise they were reset, and the step led elsewhere
            done: Future[StepResult] = Future()
            done.set_result(StepResult(*(_copied(saved["result"][name]) for name in StepResult._fields)))
            self._ahead = _Ahead(Acted(**saved["acted"]), done)


def _copied(tree: Tree) -> Tree:
    return None if tree is None else tree_map(np.array, tree)
