"""Candidates of an evolution in vector environments: waves of episodes side by side, until every one had its turn.

Episode r of every candidate begins with the same seed, so that candidates are told apart by what they do. A wave begins
with a reset of all environments, and what follows depends on neither how many there are nor on their processes; an
environment whose episode is over waits for the others. Shapes: K candidates, R rollouts, B environments, T steps.
"""

from __future__ import annotations

import numpy as np

from ludus.data.collector import Collector
from ludus.data.rollout import Rollout
from ludus.types import Array, State


class Tryouts:
    """Returns of the episodes of one generation, and how far the wave is that is being played."""

    def __init__(self, candidates: int, rollouts: int, num_envs: int) -> None:
        self.shape, self.num_envs = (candidates, rollouts), num_envs
        self.total = candidates * rollouts
        self.seeds: Array | None = None
        self.returns = np.zeros(self.total)
        self._rest()
        self.wave = 0

    def _rest(self) -> None:
        self.steps, self.sums, self.over = 0, np.zeros(self.num_envs), np.ones(self.num_envs, bool)

    @property
    def jobs(self) -> Array:
        """[B]: the episode (candidate * R + rollout) of each environment; surplus ones repeat the last."""
        return np.minimum(self.wave * self.num_envs + np.arange(self.num_envs), self.total - 1)

    @property
    def candidates(self) -> Array:
        """[B]: the candidate in each environment."""
        return self.jobs // self.shape[1]

    def begin(self, seeds_R: Array) -> None:
        """A new generation."""
        self.seeds, self.wave = np.array(seeds_R), 0
        self._rest()

    def prepare(self, collector: Collector) -> None:
        """Begin the wave, or begin it again if somebody reset the environments in the middle of it."""
        if self.steps and not collector.first.all():
            return
        assert self.seeds is not None, "a generation has to begin"
        self._rest()
        collector.barrier([int(seed) for seed in self.seeds[self.jobs % self.shape[1]]])
        self.over = self.wave * self.num_envs + np.arange(self.num_envs) >= self.total

    def add(self, steps: Rollout) -> Array | None:
        """Count a rollout; mean returns [K] once every episode of the generation is over."""
        if steps.broken is not None and (steps.broken & ~self.over).any():
            self.steps = 0  # an episode was lost with its worker: play the wave again
            return None
        over_TB = self.over | np.logical_or.accumulate(steps.done)
        before_TB = np.concatenate([self.over[None], over_TB[:-1]])
        self.sums += np.where(before_TB, 0.0, steps.raw_reward.astype(np.float64)).sum(0)
        self.steps, self.over = self.steps + len(over_TB), over_TB[-1]
        if not self.over.all():
            return None
        begin, end = self.wave * self.num_envs, min((self.wave + 1) * self.num_envs, self.total)
        self.returns[begin:end] = self.sums[: end - begin]
        self.wave, self.steps = self.wave + 1, 0
        if end < self.total:
            return None
        self.seeds = None
        return self.returns.reshape(self.shape).mean(1)

    def state_dict(self) -> State:
        """Everything that a generation needs to go on."""
        return {
            "seeds": None if self.seeds is None else self.seeds.copy(),
            "wave": self.wave,
            "steps": self.steps,
            "returns": self.returns.copy(),
            "sums": self.sums.copy(),
            "over": self.over.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on exactly where the state was taken."""
        self.seeds = None if state["seeds"] is None else np.array(state["seeds"], np.int64)
        self.wave, self.steps = int(state["wave"]), int(state["steps"])
        self.returns, self.sums = np.array(state["returns"], np.float64), np.array(state["sums"], np.float64)
        self.over = np.array(state["over"], bool)
