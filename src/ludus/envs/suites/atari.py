"""The Arcade Learning Environment: its ids, and its own vector environment with frame skip, gray, resize and stack.

`preprocessing` reads the wrappers of a config as numbers; the native and the EnvPool backend configure themselves by
them. `Games` corrects AtariVectorEnv and EnvPool where they differ from our wrappers. They clip rewards in C++, which
would lose the raw ones. They fill the stack of a new episode with black, while `frame_stack` repeats the first frame.
They begin a new game after a lost life, while `episodic_life` goes on, so their option is off. One difference stays:
the final observation of a game may be a frame or two old. Shapes: B environments.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ale_py
import numpy as np
from ale_py import roms
from gymnasium.vector import AutoresetMode

from ludus.envs.deadline import raised
from ludus.envs.snapshots import BARRIER, SnapshotChoice, trial
from ludus.envs.vector import Unsuited, VectorEnv, VectorWrapper
from ludus.envs.vector.native import ForeignVectorEnv, seed_words
from ludus.errors import ConfigError
from ludus.registry import WRAPPERS
from ludus.types import Array, StepResult

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe, WrapperCall

Arguments = dict[str, Any]
KNOWN = (
    "fire_reset", "noop_reset", "max_and_skip", "frame_skip", "episodic_life", "grayscale", "resize", "clip_reward",
    "frame_stack",
)  # fmt: skip
"""Wrappers that a native vector can replace."""
SKIPS = ("max_and_skip", "frame_skip")
ORDER = (
    ("fire_reset", "noop_reset"),
    *((first, skip) for first in ("fire_reset", "noop_reset") for skip in SKIPS),
    ("grayscale", "max_and_skip"),
    ("grayscale", "resize"),
    ("max_and_skip", "resize"),
    *((skip, "clip_reward") for skip in SKIPS),
)
"""AtariVectorEnv presses FIRE, then waits; grays frames, then takes the brighter; clips the reward of a whole step."""
ORDER_WITH_LIVES = tuple((name, "episodic_life") for name in ("fire_reset", "noop_reset", *SKIPS))
"""AtariVectorEnv presses FIRE and waits when a game begins, not in every life."""
OPTIONS = {
    "game", "frameskip", "obs_type", "repeat_action_probability", "full_action_space", "continuous",
    "continuous_action_threshold", "max_num_frames_per_episode",
}  # fmt: skip
"""Arguments of the single environment that a native vector supports."""
PASSED_ON = ("game", "repeat_action_probability", "full_action_space", "continuous", "continuous_action_threshold")
SIZE = (84, 84)
OBJECTS = {"pong": "pong_features", "breakout": "breakout_features"}
"""Wrappers for `obs_type: objects`."""

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # otherwise the first emulator of a process prints a banner


@dataclass(frozen=True)
class Preprocessing:
    """What the wrappers of a config do, in numbers."""

    base: Arguments
    """Arguments of the single environment."""
    skip: int
    """Frames of a step."""
    brighter: bool
    """The brighter of the last two frames is shown, not the last."""
    noops: int
    """Largest number of frames to wait at the beginning."""
    fire: bool
    """FIRE is pressed at the beginning."""
    lives: bool
    """A lost life ends an episode."""
    size: tuple[int, int]
    """Height and width."""
    stack: int
    """Frames the policy sees."""
    clip: tuple[float, float] | None
    """Bounds of the reward."""
    limit: int
    """Frames after which a game is truncated."""
    rest: tuple[WrapperCall, ...]
    """Wrappers outside of frame_stack."""


def extractor(where: str, game: str) -> str:
    """The wrapper that knows a game's objects."""
    if game not in OBJECTS:
        raise ConfigError(where, f"the objects of '{game}' are unknown", f"use rgb or ram, or {' or '.join(OBJECTS)}")
    return OBJECTS[game]


def preprocessing(recipe: Recipe, *, equal: bool) -> Preprocessing:
    """The wrappers in numbers; Unsuited if there are others or, with `equal`, if their order has another result."""
    names = {WRAPPERS[name]: name for name in KNOWN}
    calls = [(names.get(call.cls, ""), call) for call in recipe.wrappers]
    stacks = [i for i, (name, _) in enumerate(calls) if name == "frame_stack"]
    if len(stacks) != 1:
        raise Unsuited("it needs the wrapper frame_stack once")
    inner, rest = calls[: stacks[0]], tuple(call for _, call in calls[stacks[0] + 1 :])
    alien = [call for name, call in inner if not name] + [call for call in rest if not hasattr(call.cls, "vectorize")]
    if alien:
        raise Unsuited(f"{alien[0].where} works on single environments only")
    given = {name: _arguments(call) for name, call in inner}
    base = {**recipe.spec.kwargs, **recipe.kwargs}
    _require_pictures(base, [name for name, _ in inner])
    if equal:
        _require_order(base, list(given))
    return _read(recipe, base, {**given, "frame_stack": _arguments(calls[stacks[0]][1])}, rest)


def _read(recipe: Recipe, base: Arguments, given: dict[str, Arguments], rest: tuple[WrapperCall, ...]) -> Preprocessing:
    skipper = next((name for name in SKIPS if name in given), None)
    size, clip = given["resize"]["size"], given.get("clip_reward")
    limit = base.get("max_num_frames_per_episode") or 2**30
    if recipe.max_episode_steps is not None:
        limit = min(limit, recipe.max_episode_steps * base["frameskip"])
    return Preprocessing(
        base=base,
        skip=given[skipper]["skip"] if skipper else base["frameskip"],
        brighter=skipper == "max_and_skip",
        noops=given["noop_reset"]["noop_max"] if "noop_reset" in given else 0,
        fire="fire_reset" in given,
        lives="episodic_life" in given,
        size=SIZE if size is True else (size, size) if isinstance(size, int) else tuple(size),
        stack=given["frame_stack"]["frames"],
        clip=(clip["low"], clip["high"]) if clip else None,
        limit=limit,
        rest=rest,
    )


def _require_pictures(base: Arguments, order: Sequence[str]) -> None:
    unknown = sorted(set(base) - OPTIONS)
    if unknown:
        raise Unsuited(f"it does not take {', '.join(unknown)}")
    if not isinstance(base["frameskip"], int):
        raise Unsuited("its frame skip is never random")
    if len(set(order)) != len(order) or len(set(SKIPS) & set(order)) > 1:
        raise Unsuited("a wrapper stands twice")
    if set(SKIPS) & set(order) and base["frameskip"] != 1:
        raise Unsuited("it skips frames once; set environment.kwargs.frameskip to 1")
    if base.get("obs_type", "rgb") not in ("rgb", "grayscale"):
        raise Unsuited("it shows pictures only")
    if "resize" not in order or ("grayscale" not in order and base.get("obs_type") != "grayscale"):
        raise Unsuited("it needs gray pictures and the wrapper resize")


def _require_order(base: Arguments, order: Sequence[str]) -> None:
    pairs = ORDER if "episodic_life" not in order or lives(base["game"]) == 0 else ORDER + ORDER_WITH_LIVES
    for inner, outer in pairs:
        if inner in order and outer in order and order.index(inner) > order.index(outer):
            raise Unsuited(f"there {inner} comes before {outer}")
    if {"fire_reset", "noop_reset"} & set(order) and base["frameskip"] != 1:
        raise Unsuited("it begins with single frames; set environment.kwargs.frameskip to 1")


def lives(game: str) -> int:
    """Lives at the beginning; 0 in games without any, such as Pong."""
    ale = ale_py.ALEInterface()
    path = roms.get_rom_path(game)
    assert path is not None
    ale.loadROM(path)
    ale.reset_game()
    return int(ale.lives())


def _arguments(call: WrapperCall) -> Arguments:
    """All arguments of a wrapper, defaults included."""
    bound = inspect.signature(call.cls).bind(None, **call.arguments)
    bound.apply_defaults()
    return dict(bound.arguments)


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
