"""Uniformly random actions: the baseline every other number is read against."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from pydantic import PositiveInt

from ludus.algorithms import Algorithm, AlgorithmConfig, Context, Hook, PhaseContext
from ludus.registry import ALGORITHMS
from ludus.types import ActResult, Array, Report, Stateful, Tree


class RandomConfig(AlgorithmConfig):
    """Nothing is learned."""

    rollout_steps: PositiveInt = 128
    """Steps per environment and cycle."""


@ALGORITHMS.register("random")
class Random(Algorithm):
    """Samples the action space."""

    Config = RandomConfig
    default_cycle = ("collect",)
    deterministic_evaluation = False

    def __init__(self, cfg: RandomConfig, context: Context) -> None:
        self.collector, self.space = context.collector, context.spaces.action
        self.rng, self.evaluation_rng = context.rng, context.evaluation_rng

    def hooks(self) -> dict[str, Hook]:
        return {"collect": self.collect}

    def state(self) -> dict[str, Stateful]:
        return {}

    def initial_state(self, batch: int) -> Tree:
        return ()

    def collect(self, now: PhaseContext) -> Report:
        """Random steps."""
        assert self.collector is not None
        steps = min(now.cfg.rollout_steps, now.remaining_steps // self.collector.num_envs)
        rollout = self.collector.collect(_Uniform(self.space, self.rng), steps)
        return Report(env_steps=rollout.env_steps, metrics=self.collector.statistics())

    def act(self, obs: Array, state: Tree, first: Array, *, deterministic: bool) -> ActResult:
        return ActResult(uniform(self.space, len(first), self.evaluation_rng), state, {})


class _Uniform:
    def __init__(self, space: gym.Space, rng: np.random.Generator) -> None:
        self.space, self.rng = space, rng

    def initial_state(self, batch: int) -> Tree:
        return ()

    def act(self, obs_B: Array, state: Tree, first_B: Array) -> tuple[Array, Array, Tree]:
        action = uniform(self.space, len(first_B), self.rng)
        return action, action, state


def uniform(space: gym.Space, batch: int, rng: np.random.Generator) -> Array:
    """`batch` uniform actions of a space; an unbounded side of a Box counts as 1 away from the other or from zero."""
    if isinstance(space, gym.spaces.Discrete):
        return rng.integers(int(space.n), size=batch)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return rng.integers(space.nvec, size=(batch, *space.shape))
    if isinstance(space, gym.spaces.MultiBinary):
        return rng.integers(2, size=(batch, *space.shape))
    assert isinstance(space, gym.spaces.Box)
    low = np.where(np.isfinite(space.low), space.low, -1.0)
    high = np.where(np.isfinite(space.high), space.high, np.maximum(low, 0.0) + 1.0)
    return rng.uniform(low, high, size=(batch, *space.shape)).astype(np.float32)
