"""Vector implementations that come with an environment, adapted to the contract of vector environments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from ludus.envs import Info, catalog
from ludus.envs.deadline import Within, raised
from ludus.envs.snapshots import BARRIER, SnapshotChoice, trial
from ludus.envs.vector import Unsuited, VectorEnv
from ludus.envs.vector.buffers import ActionClipper
from ludus.envs.vector.tasks import TaskVectorEnv
from ludus.errors import ConfigError, EnvironmentFailed
from ludus.spaces import Conversion, action_conversion, observation_conversion
from ludus.types import Array, StepResult, Tree, tree_index, tree_map, tree_set, zeros

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe

CARTPOLE = "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"
ATARI = "ale_py.vector_env:AtariVectorEnv"
OURS = "ludus.envs.suites."
MODES = (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)


def build(recipe: Recipe, num_envs: int, *, threads: int, equal: bool) -> VectorEnv:
    """The native vector environment; `equal`: only if it has the spaces of the single one. Unsuited says why not."""
    if recipe.spec.vector_entry_point == ATARI:
        return _atari(recipe, num_envs, threads, equal=equal)
    _require_suited(recipe)
    if recipe.spec.vector_entry_point == CARTPOLE:
        return recipe.vectorized(_cartpole(recipe, num_envs), "native")
    make = recipe.spec.vector_entry_point
    if str(make).startswith(OURS):
        task = functools.partial(catalog.creator(recipe.id, make), **{**recipe.spec.kwargs, **recipe.kwargs})
        return recipe.vectorized(TaskVectorEnv(recipe.unwrapped().check(), num_envs, task), "native")
    venv = GymVectorEnv(recipe, num_envs)
    if equal:
        single = recipe.unwrapped().check()
        if (single.observation_space, single.action_space) != (venv.observation_space, venv.action_space):
            venv.close()
            raise Unsuited("its spaces differ from those of the single environment")
    return recipe.vectorized(venv, "native")


class ForeignVectorEnv(VectorEnv):
    """A vector of other people's code: spaces converted, actions clipped, rewards as float32, failures named."""

    _env: Any
    _used = False
    lives: Array
    """int [B] after a reset or step of games: lives left in the game that `obs` belongs to, 0 if it has no lives.

    Callers may write to it, and to the observations of games.
    """

    def __init__(
        self, recipe: Recipe, num_envs: int, spaces: tuple[gym.Space, gym.Space], metadata: Info, see: Conversion | None
    ) -> None:
        self._recipe, self._see = recipe, see or observation_conversion(spaces[0], recipe.id)
        self._act = action_conversion(spaces[1], recipe.id)
        super().__init__(recipe.info(self._see.space, self._act.space, metadata), num_envs)
        self._action, self._reward = zeros(self.action_space, num_envs), np.zeros(num_envs, np.float32)
        self._clipper = ActionClipper(self.action_space)
        self._where = f"environments 0 to {num_envs - 1} ({self.id})"
        self._deadlines = {verb: Within(recipe.deadline, self._where, verb) for verb in ("reset", "step")}

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        raise ConfigError("environment.vectorization", f"'{self.id}' does not draw here", "use sync for videos")

    def _construct(self, num_envs: int) -> Any:
        raise NotImplementedError

    def _reset(self, seed: Any) -> Any:
        """Reset the vector; with `barrier` a used one is replaced by a new one."""
        if self._used and self.snapshot_method == BARRIER:
            self.close()
            self._env = self._construct(self.num_envs)
        self._used = True
        return self._call("reset", seed=seed)

    def _call(self, verb: str, *arguments: Any, **options: Any) -> Any:
        try:
            with self._deadlines[verb]:
                return getattr(self._env, verb)(*arguments, **options)
        except BaseException as error:  # whatever an environment raises is named, with its traceback
            raise raised(self._where, verb, error) from error

    def close(self) -> None:
        self._env.close()


def seed_words(seeds: Sequence[int]) -> list[int]:
    """Seeds as C++ takes them: 31 bits."""
    return [int(np.random.SeedSequence(int(seed)).generate_state(1)[0] & 0x7FFFFFFF) for seed in seeds]


class GymVectorEnv(ForeignVectorEnv):
    """A Gymnasium vector environment that resets in the same step, or lets us reset."""

    backend = "native"

    def __init__(self, recipe: Recipe, num_envs: int) -> None:
        self._recipe = recipe
        env = self._env = self._construct(num_envs)
        super().__init__(recipe, num_envs, (env.single_observation_space, env.single_action_space), env.metadata, None)
        self._same_step = env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
        self._obs, self._final_obs = (zeros(self.observation_space, num_envs) for _ in range(2))

    def reset(self, seeds: Sequence[int]) -> Tree:
        obs, _ = self._reset(_seed(self._env, seeds))
        tree_set(self._obs, ..., self._see(obs))
        return self._obs

    def step(self, action: Array) -> StepResult:
        self._clipper.write(action, self._action)
        obs, reward, terminated, truncated, infos = self._call("step", self._act(self._action))
        done = terminated | truncated
        try:
            np.copyto(self._reward, reward, casting="same_kind")
            tree_map(functools.partial(np.copyto, casting="safe"), self._obs, self._see(obs))
        except TypeError as error:  # casting is never silent
            raise EnvironmentFailed(f"environments of {self.id}", f"step: {error}", "fix the environment") from error
        if not done.any():
            return StepResult(self._obs, self._reward, terminated, truncated, None, self._reward)
        rows = np.flatnonzero(done)
        if self._same_step:
            for i in rows:
                tree_set(self._final_obs, i, self._see(tree_map(np.asarray, infos["final_obs"][i])))
        else:
            tree_map(np.copyto, self._final_obs, self._obs)
            obs, _ = self._call("reset", options={"reset_mask": done})
            tree_set(self._obs, rows, tree_index(self._see(obs), rows))
        return StepResult(self._obs, self._reward, terminated, truncated, self._final_obs, self._reward)

    def render(self, index: int = 0, *, final: bool = False) -> Array:
        if final:
            raise ConfigError("environment.vectorization", "native environments keep no final frame", "use sync")
        frames: Any = self._env.render()
        return np.asarray(frames[index])

    def _choose(self) -> SnapshotChoice:
        return trial.vector_choice(BARRIER, lambda: GymVectorEnv(self._recipe, 2))

    def _construct(self, num_envs: int) -> gym.vector.VectorEnv:
        recipe, spec = self._recipe, self._recipe.spec
        try:
            make = catalog.creator(recipe.id, spec.vector_entry_point)
        except ConfigError as error:
            raise Unsuited(error.line()) from error
        arguments: dict[str, Any] = {**spec.kwargs, **recipe.kwargs}
        steps = recipe.max_episode_steps or spec.max_episode_steps
        if steps is not None:
            arguments["max_episode_steps"] = steps
        if recipe.render_mode is not None:
            arguments["render_mode"] = recipe.render_mode
        parameters = inspect.signature(make).parameters
        open_ended = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
        unknown = [] if open_ended else sorted(set(arguments) - set(parameters))
        if unknown:
            raise Unsuited(f"its vector class does not take {', '.join(unknown)}")
        modes = MODES if "autoreset_mode" in parameters else ()
        for mode in modes:
            env = make(num_envs=num_envs, **arguments, autoreset_mode=mode)
            if env.metadata.get("autoreset_mode") == mode:
                return env
            env.close()
        if _own_metadata(make).get("autoreset_mode") in MODES:
            return make(num_envs=num_envs, **arguments)
        raise Unsuited("its vector class only resets in the step after an episode's end")


def _seed(env: gym.vector.VectorEnv, seeds: Sequence[int]) -> int | list[int]:
    """One seed per environment where Gymnasium takes that; else one seed that depends on all of them."""
    own = [int(seed) for seed in seeds]
    if isinstance(env, gym.vector.SyncVectorEnv | gym.vector.AsyncVectorEnv):
        return own
    return int(np.random.SeedSequence(own).generate_state(1)[0] >> 1)


def _require_suited(recipe: Recipe) -> None:
    if recipe.spec.vector_entry_point is None:
        raise Unsuited("it has no vector entry point")
    if recipe.spec.additional_wrappers:
        raise Unsuited("it is registered with wrappers of its own")
    if recipe.render_mode == "human":
        raise Unsuited("it has no window")
    for call in recipe.wrappers:
        if not hasattr(call.cls, "vectorize"):
            raise Unsuited(f"{call.where} works on single environments only")


def _cartpole(recipe: Recipe, num_envs: int) -> VectorEnv:
    from ludus.envs.vector.cartpole import CartPole, CartPoleVectorEnv

    extra = set(recipe.kwargs) - {"sutton_barto_reward"}
    if extra:
        raise Unsuited(f"it does not take {', '.join(sorted(extra))}")
    info = recipe.unwrapped().check()
    return CartPoleVectorEnv(info, num_envs, functools.partial(CartPole, info=info, **recipe.kwargs))


def _atari(recipe: Recipe, num_envs: int, threads: int, *, equal: bool) -> VectorEnv:
    from ludus.envs.suites.atari import Emulators, finished, preprocessing

    if recipe.render_mode is not None:
        raise Unsuited("it draws nothing but what the policy sees")
    plan = preprocessing(recipe, equal=equal)
    return finished(Emulators(recipe, plan, num_envs, min(threads, num_envs)), plan)


def _own_metadata(make: Any) -> dict[str, Any]:
    """The class's own metadata; some classes write into the dictionary that all of Gymnasium's classes share."""
    classes = inspect.getmro(make) if inspect.isclass(make) else ()
    return next((vars(c)["metadata"] for c in classes if c is not gym.vector.VectorEnv and "metadata" in vars(c)), {})
