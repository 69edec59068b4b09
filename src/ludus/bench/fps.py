"""Measures environment steps per second with random actions, by backend and number of environments."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ludus.acting.uniform import uniform
from ludus.config.schema import Environment
from ludus.data.collector import Collector
from ludus.envs.make import make_vector
from ludus.envs.vector import VectorEnv
from ludus.errors import ConfigError, LudusError
from ludus.types import Acted, Array, Tree

BACKENDS = ("sync", "async", "native", "envpool")
ROLLOUT = 64
"""Vector steps of one rollout."""


class Speed(NamedTuple):
    """One row of the table."""

    id: str
    backend: str
    num_envs: int
    steps: float | None = None
    """Environment steps per second of the bare vector environment."""
    rollout: float | None = None
    """The same with the collector, which stores every step."""
    problem: str = ""
    """Why there is no measurement."""


class Presampled:
    """A policy without computation: repeats presampled actions."""

    def __init__(self, actions: Array) -> None:
        self.actions, self._at = actions, -1

    def initial_state(self, batch: int) -> Tree:
        """An empty state."""
        return ()

    def act(self, obs_B: Array, state: Tree, first_B: Array) -> Acted:
        """The next actions."""
        self._at = (self._at + 1) % len(self.actions)
        action = self.actions[self._at]
        return Acted(action, action, state, {})


def measure(cfg: Environment, backend: str, num_envs: int, seconds: float = 1.0) -> Speed:
    """Measure both speeds, each after a warm-up; a backend that fails gives a row with the reason."""
    try:
        with make_vector(cfg, num_envs=num_envs, vectorization=backend) as env:
            actions = presampled(env)
            loops = (bare_loop(env, actions), our_loop(env, actions))
            bare, rollout = (rate(loop, seconds) * num_envs for loop in loops)
            return Speed(cfg.id, backend, num_envs, bare, rollout)
    except LudusError as error:
        return Speed(cfg.id, backend, num_envs, problem=error.problem)


def backends(cfg: Environment) -> dict[str, str]:
    """Every backend, with the reason why it cannot run this environment, or ''."""
    found = {}
    for backend in BACKENDS:
        try:
            make_vector(cfg, num_envs=1, vectorization=backend).close()
        except ConfigError as error:
            found[backend] = f"{error.problem}; {error.remedy}" if error.remedy else error.problem
        else:
            found[backend] = ""
    return found


def presampled(env: VectorEnv) -> Array:
    """Random actions of one rollout."""
    rng = np.random.default_rng(0)
    return np.stack([uniform(env.action_space, env.num_envs, rng) for _ in range(ROLLOUT)])


def bare_loop(env: VectorEnv, actions: Array) -> Callable[[], None]:
    """A function that steps the environments for one rollout and stores nothing."""
    env.reset(range(env.num_envs))

    def run() -> None:
        for action in actions:
            env.step(action)

    return run


def our_loop(env: VectorEnv, actions: Array) -> Callable[[], object]:
    """A function that collects one rollout."""
    collector, policy = Collector(env, list(range(env.num_envs))), Presampled(actions)
    return lambda: collector.collect(policy, len(actions))


def rate(loop: Callable[[], object], seconds: float) -> float:
    """Vector steps per second; the first rollout is a warm-up and not counted."""
    loop()
    began, rollouts = time.perf_counter(), 0
    while (taken := time.perf_counter() - began) < seconds or not rollouts:
        loop()
        rollouts += 1
    return rollouts * ROLLOUT / taken
