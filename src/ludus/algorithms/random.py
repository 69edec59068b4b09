"""Uniformly random actions: the baseline every other number is read against."""

from __future__ import annotations

from pydantic import PositiveInt

from ludus.acting.behaviour import Behaviour
from ludus.acting.exploration import UniformActions
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
    networks = frozenset()

    def __init__(self, cfg: RandomConfig, context: Context) -> None:
        self.collector = context.collector
        strategy = UniformActions(context.spaces.action)
        self.behaviour = Behaviour(None, strategy, rng=context.rng, evaluation_rng=context.evaluation_rng)

    def hooks(self) -> dict[str, Hook]:
        """`collect` alone."""
        return {"collect": self.collect}

    def state(self) -> dict[str, Stateful]:
        """Nothing: it learns nothing."""
        return {}

    def collect(self, now: PhaseContext) -> Report:
        """Random steps."""
        rollout = self.rollout(now, now.cfg.rollout_steps)
        return Report(env_steps=rollout.env_steps, metrics=self.statistics())

    def act(self, obs: Array, state: Tree, first: Array, *, deterministic: bool) -> ActResult:
        return self.behaviour.evaluate(obs, state, first, deterministic=False)
