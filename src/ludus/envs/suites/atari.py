"""The Arcade Learning Environment: its ids, and the wrappers of a config as numbers for a vector environment in C++.

`preprocessing` reads the wrappers of a recipe; the native and the EnvPool backend configure themselves by the result.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ale_py
from ale_py import roms

from ludus.envs.vector import Unsuited
from ludus.errors import ConfigError
from ludus.registry import WRAPPERS

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
    if any(not isinstance(given[name]["skip"], int) for name in SKIPS if name in given):
        raise Unsuited("its frame skip is never random")
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
