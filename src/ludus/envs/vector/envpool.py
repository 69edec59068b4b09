"""EnvPool: C++ environments on its own threads. Finished ones are reset by a second, partial call.

EnvPool does not say whether an episode that ends at the step of its time limit terminated: such a step is truncated
here and terminated in the other backends.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from ludus.envs.snapshots import BARRIER, SnapshotChoice, trial
from ludus.envs.vector import Unsuited, VectorEnv
from ludus.envs.vector.native import ForeignVectorEnv, seed_words
from ludus.errors import ConfigError, MissingExtra
from ludus.spaces import Conversion
from ludus.text import did_you_mean
from ludus.types import Array, StepResult, Tree, tree_index, tree_set, zeros

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe

ARCADE = "ALE/"
"""Prefix of Atari ids, which EnvPool's names do not have."""


def build(recipe: Recipe, num_envs: int, threads: int) -> VectorEnv:
    """An EnvPool of `recipe`'s environment with its wrappers; it must be one of EnvPool's tasks."""
    try:
        import envpool
    except ImportError as error:
        raise MissingExtra("environment.vectorization: envpool", "envpool") from error
    task = recipe.id.removeprefix(ARCADE)
    if task not in envpool.list_all_envs():
        raise ConfigError("environment.vectorization", f"EnvPool has no '{recipe.id}'", "use sync or async")
    if recipe.render_mode is not None:
        raise ConfigError("environment.vectorization", "EnvPool does not render here", "use sync for videos")
    if task != recipe.id:
        return _games(envpool, recipe, task, num_envs, threads)
    known = envpool.make_spec(recipe.id)._config_keys
    for key in recipe.kwargs:
        if key not in known:
            raise ConfigError(f"environment.kwargs.{key}", "EnvPool does not know it", did_you_mean(key, known))
    options = {**recipe.kwargs}
    if recipe.max_episode_steps is not None:
        options["max_episode_steps"] = recipe.max_episode_steps
    see, first = None, recipe.wrappers[:1]
    if any(getattr(call.cls, "observes", False) and hasattr(call.cls, "conversion") for call in first):
        # MiniGrid's: it turns several observations into one
        if recipe.max_episode_steps is not None:
            problem = f"EnvPool's '{recipe.id}' would pay by it"
            raise ConfigError("environment.max_episode_steps", problem, "leave it out, or use sync")
        for key in recipe.kwargs:  # `agent_view_size` makes it write beyond its memory
            problem = f"EnvPool's '{recipe.id}' is trusted without arguments only"
            raise ConfigError(f"environment.kwargs.{key}", problem, "use sync")
        see = first[0].cls.conversion(recipe.bare_observation_space())
        recipe = replace(recipe, wrappers=recipe.wrappers[1:])
    return recipe.vectorized(EnvPoolVectorEnv(envpool, recipe, task, num_envs, threads, options, see), "envpool")


def _games(envpool: Any, recipe: Recipe, task: str, num_envs: int, threads: int) -> VectorEnv:
    """Atari games: they wait first, then press FIRE; otherwise they equal ALE's own vector environment."""
    from ludus.envs.suites.atari import finished, preprocessing

    try:
        plan = preprocessing(recipe, equal=False)
        if not plan.brighter or plan.base.get("continuous"):
            raise Unsuited("it takes buttons, and shows the brighter of two frames: max_and_skip")
    except Unsuited as reason:
        problem = f"EnvPool cannot run '{recipe.id}': {reason}"
        raise ConfigError("environment.vectorization", problem, "use auto, sync or async") from None
    options = {
        "stack_num": plan.stack,
        "frame_skip": plan.skip,
        "noop_max": max(1, plan.noops),  # EnvPool counts the FIRE frame as one of the no-ops
        "use_fire_reset": plan.fire,
        "img_height": plan.size[0],
        "img_width": plan.size[1],
        "max_episode_steps": -(-plan.limit // plan.skip),
        "repeat_action_probability": float(plan.base.get("repeat_action_probability", 0.0)),
        "full_action_space": bool(plan.base.get("full_action_space", False)),
    }
    return finished(EnvPoolVectorEnv(envpool, recipe, task, num_envs, threads, options), plan)


class EnvPoolVectorEnv(ForeignVectorEnv):
    """One EnvPool; it takes seeds only when it is made, so every reset makes a new one."""

    backend = "envpool"

    def __init__(
        self,
        envpool: Any,
        recipe: Recipe,
        task: str,
        num_envs: int,
        threads: int,
        options: dict[str, Any],
        see: Conversion | None = None,
    ) -> None:
        self._envpool, self._id, self._options = envpool, task, options
        self._arguments = {"num_envs": num_envs, "num_threads": min(threads, num_envs), **options}
        spec = envpool.make_spec(task, **self._arguments)
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # its bounds are doubles
            observation, action = spec.gymnasium_observation_space, spec.gymnasium_action_space
        self._limit = int(spec.config.max_episode_steps)
        limited = replace(recipe, max_episode_steps=self._limit)
        super().__init__(limited, num_envs, (_repaired(observation), action), {}, see)
        self._obs, self._final_obs = (zeros(self.observation_space, num_envs) for _ in range(2))
        self.lives = np.zeros(num_envs, np.int32)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._pool: Any = None

    def reset(self, seeds: Sequence[int]) -> Tree:
        self.close()
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            self._pool = self._envpool.make(self._id, env_type="gymnasium", seed=seed_words(seeds), **self._arguments)
            obs, info = self._pool.reset()
        tree_set(self._obs, ..., self._see(obs))
        self._elapsed.fill(0)
        self.lives = info.get("lives", self.lives)
        return self._obs

    def step(self, action: Array) -> StepResult:
        self._clipper.write(action, self._action)
        obs, reward, terminated, truncated, info = self._pool.step(self._act(self._action))
        self.lives = info.get("lives", self.lives)
        self._reward[:] = reward
        tree_set(self._obs, ..., self._see(obs))
        self._elapsed += 1
        truncated = truncated | (self._elapsed >= self._limit)  # some tasks have no clock (CliffWalking)
        rows = np.flatnonzero(terminated | truncated)
        if not len(rows):
            return StepResult(self._obs, self._reward, terminated, truncated, None, self._reward)
        self._elapsed[rows] = 0
        tree_set(self._final_obs, rows, tree_index(self._obs, rows))
        obs, info = self._pool.reset(rows.astype(np.int32))
        tree_set(self._obs, info["env_id"], self._see(obs))
        if "lives" in info:
            self.lives = self.lives.copy()  # the pool's own memory
            self.lives[info["env_id"]] = info["lives"]
        return StepResult(self._obs, self._reward, terminated, truncated, self._final_obs, self._reward)

    def _choose(self) -> SnapshotChoice:
        details = (2, self._arguments["num_threads"], self._options, self._see)
        make = partial(EnvPoolVectorEnv, self._envpool, self._recipe, self._id, *details)
        return trial.vector_choice(BARRIER, make)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _repaired(space: gym.Space) -> gym.Space:
    """Replace bounds of the largest or smallest positive float, by which some tasks mean no bound."""
    if not isinstance(space, gym.spaces.Box) or space.dtype.kind != "f":
        return space
    limits = np.finfo(space.dtype)
    low = np.where((space.low == limits.tiny) | (space.low == limits.min), -np.inf, space.low)
    high = np.where(space.high == limits.max, np.inf, space.high)
    return gym.spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype)
