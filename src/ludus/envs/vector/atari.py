"""ALE's own vector environment: emulator, frame skip, gray, resize and stack in C++ threads.

`Games` corrects AtariVectorEnv and EnvPool where they differ from our wrappers. They clip rewards in C++, which would
lose the raw ones. They fill the stack of a new episode with black, while `frame_stack` repeats the first frame. They
begin a new game after a lost life, while `episodic_life` goes on, so their option is off. One difference stays: the
final observation of a game may be a frame or two old. Shapes: B environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode

from ludus.envs.failure import raised
from ludus.envs.snapshots import BARRIER, SnapshotChoice, trial
from ludus.envs.suites.atari import Preprocessing
from ludus.envs.vector import VectorEnv, VectorWrapper
from ludus.envs.vector.native import ForeignVectorEnv, seed_words
from ludus.types import Array, StepResult

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe

PASSED_ON = ("game", "repeat_action_probability", "full_action_space", "continuous", "continuous_action_threshold")


def finished(emulators: ForeignVectorEnv, plan: Preprocessing) -> VectorEnv:
    """`emulators` with the contract of vector environments, and with the wrappers outside of the frame stack."""
    venv: VectorEnv = Games(emulators, plan)
    for call in plan.rest:
        venv = call.apply(call.cls.vectorize, venv)
    return venv


class Emulators(ForeignVectorEnv):
    """AtariVectorEnv with raw rewards."""

    backend = "native"

    def __init__(self, recipe: Recipe, plan: Preprocessing, num_envs: int, threads: int) -> None:
        self._recipe, self._plan, self._threads = recipe, plan, threads
        env = self._env = self._construct(num_envs)
        super().__init__(recipe, num_envs, (env.single_observation_space, env.single_action_space), env.metadata, None)

    def reset(self, seeds: Sequence[int]) -> Array:
        obs, info = self._reset(np.array(seed_words(seeds)))
        self.lives = info["lives"]
        return obs

    def step(self, action: Array) -> StepResult:
        self._clipper.write(action, self._action)
        obs, reward, terminated, truncated, info = self._call("step", self._action)
        self._reward[:] = reward
        self.lives = info["lives"]
        return StepResult(obs, self._reward, terminated, truncated, info.get("final_obs"), self._reward)

    def _choose(self) -> SnapshotChoice:
        return trial.vector_choice(BARRIER, lambda: Emulators(self._recipe, self._plan, 2, min(2, self._threads)))

    def _construct(self, num_envs: int) -> Any:
        from ale_py.vector_env import AtariVectorEnv

        plan = self._plan
        try:
            return AtariVectorEnv(
                num_envs=num_envs,
                num_threads=self._threads,
                autoreset_mode=AutoresetMode.SAME_STEP,
                img_height=plan.size[0],
                img_width=plan.size[1],
                stack_num=plan.stack,
                frameskip=plan.skip,
                maxpool=plan.brighter,
                noop_max=plan.noops + 1 if plan.noops else 0,  # it draws from 0 to one less
                use_fire_reset=plan.fire,
                reward_clipping=False,
                max_num_frames_per_episode=plan.limit,
                **{key: plan.base[key] for key in PASSED_ON if key in plan.base},
            )
        except BaseException as error:  # whatever it raises is named, with its traceback
            raise raised(f"environment {self._recipe.id}", "making it", error) from error


class Games(VectorWrapper):
    """Clipped rewards, full stacks and lives that end episodes, like the wrappers of a single environment."""

    def __init__(self, inner: ForeignVectorEnv, plan: Preprocessing) -> None:
        super().__init__(inner)
        self._emulators, self._plan, self._stack = inner, plan, plan.stack
        self._reward = np.zeros(self.num_envs, np.float32)
        self._lives = np.zeros(self.num_envs, np.int32)
        self._age = np.zeros(self.num_envs, np.int64)
        """Steps since an episode's first observation; counted only while some stack is not yet full."""
        self._young = True

    def reset(self, seeds: Sequence[int]) -> Array:
        obs = self.inner.reset(seeds)
        self._lives = self._emulators.lives
        self._age[:] = 0
        return self.convert(obs)

    def step(self, action: Array) -> StepResult:
        obs, reward, terminated, truncated, final, raw_reward, broken, continues = self.inner.step(action)
        if self._plan.clip is not None:
            reward = np.clip(raw_reward, *self._plan.clip, out=self._reward)
        lives, self._lives = self._lives, self._emulators.lives
        done = terminated | truncated
        lost = (self._lives < lives) & (self._lives > 0) & ~done if self._plan.lives else None
        if lost is not None and lost.any():
            final = np.zeros_like(obs) if final is None else final
            final[lost] = obs[lost]
            terminated, done, continues = terminated | lost, done | lost, lost
        if self._young:
            self._age += 1
            final = None if final is None else self.convert(final)
        if final is not None:
            self._age[done] = 0
        if self._young or final is not None:
            obs = self.convert(obs)
        return StepResult(obs, reward, terminated, truncated, final, raw_reward, broken, continues)

    def convert(self, obs: Array) -> Array:
        """Replace frames from before an episode by its first frame."""
        rows = np.flatnonzero(self._age < self._stack - 1)
        self._young = len(rows) > 0
        for b in rows:
            first = self._stack - 1 - int(self._age[b])
            obs[b, :first] = obs[b, first]
        return obs
