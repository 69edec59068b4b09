"""Tabular Q-learning (Watkins 1989): one number for every state and action, no network.

Reading order: QLearningConfig -> collect -> update_controller -> Table.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from pydantic import PositiveInt

from ludus.acting.actor import Actor, Outputs
from ludus.acting.behaviour import Behaviour, Strategy
from ludus.acting.exploration import Level
from ludus.acting.facts import Makers, q_facts
from ludus.algorithms import Algorithm, AlgorithmConfig, Context, Hook, PhaseContext
from ludus.config.schedule import UnitSchedule, constant
from ludus.data.rollout import Rollout
from ludus.errors import ConfigError
from ludus.registry import ALGORITHMS
from ludus.types import Array, Report, Stateful, Tree


class QLearningConfig(AlgorithmConfig):
    """Tabular Q-learning."""

    fixed = frozenset({"initial_value"})
    search = {"lr": "uniform(0.05,1.0)", "gamma": "0.9,0.95,0.99,0.999", "epsilon": "uniform(0.01,0.3)"}

    rollout_steps: PositiveInt = 32
    """Steps per environment between updates."""
    lr: UnitSchedule = constant(0.1)
    """How far a value moves towards its target; 1 is right where nothing is random."""
    gamma: UnitSchedule = constant(0.99)
    """Discount."""
    epsilon: UnitSchedule = constant(0.1)
    """Share of random actions."""
    initial_value: float = 0.0
    """Value of every action before it is tried; one that no return can reach makes the policy try all of them."""


@ALGORITHMS.register("q_learning")
class QLearning(Algorithm):
    """Every step moves the value of its state and action towards reward + discounted best value that follows."""

    Config = QLearningConfig
    off_policy = True
    networks = frozenset()

    def __init__(self, cfg: QLearningConfig, context: Context) -> None:
        states = discrete(context.spaces.observation, "observations", "use dqn or ppo")
        actions = discrete(context.spaces.action, "actions", "use ppo")
        self.collector = context.collector
        self.table = Table(states, actions, cfg.initial_value)
        self.epsilon = Level(cfg.epsilon.start)
        strategy = BestOrAny(self.epsilon)
        self.behaviour = Behaviour(self.table, strategy, rng=context.rng, evaluation_rng=context.evaluation_rng)
        self.experience: Rollout | None = None

    def hooks(self) -> dict[str, Hook]:
        """`collect`, then `update_controller`."""
        return {"collect": self.collect, "update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        """The table; how much is explored now."""
        return {"table": self.table, "epsilon": self.epsilon}

    # ---- collect -------------------------------------------------------------------------------

    def collect(self, now: PhaseContext) -> Report:
        """Steps of the epsilon-greedy policy."""
        self.epsilon.value = now.at(now.cfg.epsilon)
        self.experience = self.rollout(now, now.cfg.rollout_steps)
        return Report(env_steps=self.experience.env_steps, metrics=self.statistics())

    # ---- update --------------------------------------------------------------------------------

    def update_controller(self, now: PhaseContext) -> Report:
        """Learn from every step of the newest rollout, in the order of time."""
        if self.experience is None:
            return Report()
        rollout, self.experience = self.experience, None
        error = self.table.learn(rollout, now.at(now.cfg.lr), now.at(now.cfg.gamma))
        return Report(updates=rollout.env_steps, metrics={"loss/td_error": error})


class Table(Actor):
    """Values [S, A]; acts as its own actor."""

    recurrent = False

    def __init__(self, states: int, actions: int, initial: float) -> None:
        self.q_SA = np.full((states, actions), initial)

    def refresh(self) -> None:
        """Nothing to copy."""

    def initial_state(self, batch: int) -> Tree:
        """A table has no memory."""
        return ()

    def __call__(
        self, obs_B: Array, state: Tree, first_B: Array, rng: np.random.Generator | None = None
    ) -> tuple[Outputs, Tree]:
        """The values of these states."""
        return Outputs(len(obs_B), ("q",), self.q_SA[obs_B], lambda values, _: values), state

    def learn(self, rollout: Rollout, lr: float, gamma: float) -> float:
        """Q(s, a) += lr (r + gamma max Q(s', .) - Q(s, a)) step by step; returns the mean absolute error."""
        following_TB = rollout.obs[1:].copy()
        if rollout.finals is not None:  # a truncated episode goes on in its true final state, not in the next one
            following_TB[rollout.finals.t, rollout.finals.b] = rollout.finals.obs
        columns = [rollout.obs[:-1], rollout.action, rollout.reward, rollout.terminated, following_TB]
        if rollout.broken is not None:
            columns = [column[~rollout.broken] for column in columns]
        q_SA, total = self.q_SA, 0.0
        for s, a, reward, terminated, after in zip(*(column.ravel().tolist() for column in columns), strict=True):
            values = q_SA[s]
            error = (reward if terminated else reward + gamma * q_SA[after].max()) - values[a]
            values[a] += lr * error
            total += abs(error)
        return float(total) / rollout.env_steps

    def state_dict(self) -> dict[str, Any]:
        """The table."""
        return {"q": self.q_SA}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Copies into the table."""
        self.q_SA[...] = state["q"]


class BestOrAny(Strategy):
    """One of the best actions, ties drawn; with probability epsilon any."""

    def __init__(self, epsilon: Level) -> None:
        self.epsilon = epsilon

    def draw(self, outputs: Outputs, rng: np.random.Generator | None) -> Array:
        """Greedy without a random stream."""
        q_BA = outputs("q")
        return q_BA.argmax(-1) if rng is None else epsilon_greedy(q_BA, self.epsilon.value, rng)

    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        """Those of an epsilon-greedy choice."""
        return q_facts(outputs("q"), drawn, self.epsilon.value)


def epsilon_greedy(values_BA: Array, epsilon: float, rng: np.random.Generator) -> Array:
    """One of the best actions, ties drawn; with probability epsilon any."""
    draws_BA = rng.random(values_BA.shape)
    best_BA = (values_BA == values_BA.max(-1, keepdims=True)) | (rng.random((len(values_BA), 1)) < epsilon)
    return np.where(best_BA, draws_BA, -1.0).argmax(-1)


def discrete(space: gym.Space, what: str, remedy: str) -> int:
    """Number of elements of a Discrete space; a table needs no other."""
    if not isinstance(space, gym.spaces.Discrete):
        raise ConfigError("algorithm.name", f"q_learning needs Discrete {what}, not {space}", remedy)
    return int(space.n)
