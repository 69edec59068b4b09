"""The environments that are checked: made on one backend and played with fixed seeds and actions.

Shapes: T steps of B environments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ludus.acting.uniform import uniform
from ludus.config.schema import Environment
from ludus.envs.make import make_vector
from ludus.envs.spaces import EnvInfo
from ludus.envs.vector import VectorEnv
from ludus.errors import LudusError
from ludus.types import Array, Tree, tree_index, tree_leaves, tree_map, tree_set

STEPS = 40
LIMIT = 13
"""Time limit of the checked episodes, so that several end within STEPS."""


class Broken(Exception):
    """The contract is violated."""


@dataclass(frozen=True)
class Recording:
    """A rollout of copied arrays."""

    obs: Tree
    """[T + 1, B, ...]"""
    final_obs: Tree
    """[T, B, ...], zero where no episode ended"""
    reward: Array
    raw_reward: Array
    terminated: Array
    truncated: Array

    @property
    def done(self) -> Array:
        """Where an episode ended."""
        return self.terminated | self.truncated

    def same(self, other: Recording) -> bool:
        """Whether both are equal to the bit."""
        pairs = zip(tree_leaves(vars(self)), tree_leaves(vars(other)), strict=True)
        return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


class Subject:
    """Environments of one config on one backend, and the actions of the check."""

    def __init__(
        self, cfg: Environment, backend: str, *, num_envs: int = 3, steps: int = STEPS, limit: int = LIMIT
    ) -> None:
        self.cfg, self.backend, self.num_envs, self.steps, self.limit = cfg, backend, num_envs, steps, limit
        self.limited = True
        try:
            self.env = self.make(limit)
        except LudusError:
            self.limited = False
            self.env = self.make(None)
        self.info: EnvInfo = self.env.info
        rng = np.random.default_rng(7)
        self.actions = np.stack([uniform(self.env.action_space, num_envs, rng) for _ in range(steps)])
        self.seeds = list(range(100, 100 + num_envs))
        self.record = play(self.env, self.seeds, self.actions)

    def make(self, limit: int | None) -> VectorEnv:
        """New environments, with this time limit if the backend takes one."""
        changes: dict[str, Any] = {"vectorization": self.backend, "max_episode_steps": limit if self.limited else None}
        return make_vector(self.cfg, num_envs=self.num_envs, workers=2, **changes)

    def play(self, limit: int | None) -> Recording:
        """Play the same seeds and actions in new environments."""
        with self.make(limit) as env:
            return play(env, self.seeds, self.actions)


def play(env: VectorEnv, seeds: list[int], actions: Array) -> Recording:
    """Reset and play `actions`."""
    obs = [tree_map(np.copy, env.reset(seeds))]
    seen: dict[str, list[Tree]] = {name: [] for name in Recording.__dataclass_fields__ if name != "obs"}
    for action in actions:
        given = action.copy()
        result = env.step(given)
        if not np.array_equal(given, action):
            raise Broken("step changed the caller's actions")
        done = result.done
        if (result.final_obs is None) != (not done.any()):
            raise Broken("final_obs must be there exactly when an episode ended")
        final = tree_map(np.zeros_like, result.obs)
        if result.final_obs is not None:
            if any(tree_leaves(tree_map(np.shares_memory, result.final_obs, result.obs))):
                raise Broken("final_obs and obs are the same memory")
            tree_set(final, done, tree_index(result.final_obs, done))
        obs.append(tree_map(np.copy, result.obs))
        step = {**result._asdict(), "final_obs": final}
        for name, values in seen.items():
            values.append(tree_map(np.copy, step[name]))
    seen["obs"] = obs
    return Recording(**{name: tree_map(lambda *leaves: np.stack(leaves), *trees) for name, trees in seen.items()})
