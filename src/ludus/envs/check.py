"""The start-up check of one environment, and the probe of its seeding."""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ludus.envs import Observation
from ludus.envs.deadline import Within, raised
from ludus.envs.spaces import ConvertSpaces
from ludus.errors import EnvironmentFailed
from ludus.terminal import warn
from ludus.types import Array, tree_leaves

STEPS = 3
"""Random steps of the check: enough for a wrong dtype or shape to show, cheap for slow environments."""
PROBE_STEPS, PROBE_SECONDS = 10, 2.0
"""Steps of the probe, and the seconds after which it is content with fewer."""
ROUNDING = 4
"""Units in the last place of float32 by which a value may leave its bounds: policies compute in float32."""
Answer = Any
"""What an environment returned, of whatever type."""
Check = Callable[[gym.Space, Observation], str | None]
"""Why a value does not fit a space."""
_announced: set[str] = set()
"""Ids whose rounding errors were told."""


def check(env: gym.Env, id: str, deadline: float = math.inf) -> None:
    """Reset and step a few times; refuse values that do not match the spaces. A reset is due afterwards."""
    call = partial(_call, id, deadline)
    raw = env.env if isinstance(env, ConvertSpaces) else env
    raw.action_space.seed(0)
    answer = call("reset", lambda: raw.reset(seed=0))
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise _wrong(id, "reset", f"returned {_kind(answer)}, not (observation, info)")
    _require(id, "reset", raw.observation_space, answer[0])
    for _ in range(STEPS):
        answer = call("step", lambda: raw.step(raw.action_space.sample()))
        if not (isinstance(answer, tuple) and len(answer) == 5 and isinstance(answer[4], dict)):
            raise _wrong(id, "step", f"returned {_kind(answer)}, not (obs, reward, terminated, truncated, info)")
        obs, reward, terminated, truncated, _ = answer
        _require(id, "step", raw.observation_space, obs)
        if not _is_number(reward) or not math.isfinite(reward):
            raise _wrong(id, "step", f"returned the reward {_kind(reward)}, not a finite number")
        if not (isinstance(terminated, bool | np.bool_) and isinstance(truncated, bool | np.bool_)):
            raise _wrong(id, "step", "returned terminated or truncated that is not a bool")
        if terminated or truncated:
            break


def probe(env: gym.Env, id: str, deadline: float = math.inf) -> list[str]:
    """Warnings about an environment whose episodes do not follow from seed and actions."""
    call = partial(_call, id, deadline)
    first = _trace(env, call, PROBE_STEPS, PROBE_SECONDS)
    again = _trace(env, call, len(first) - 1)
    if first[0] != again[0]:
        return [f"{id}: reset(seed) does not fix the first observation; runs with it cannot be reproduced"]
    if first != again:
        return [f"{id}: episodes with the same seed and actions differ; resuming a run will not be exact"]
    return []


def fault(space: gym.Space, value: Observation) -> str | None:
    """Why `value` is not in `space`."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _fault_of_parts(fault, space, value)
    if isinstance(space, spaces.Discrete):
        inside = _is_number(value, numbers.Integral) and space.start <= value < space.start + space.n
        return None if inside else f"is {_kind(value)}, not in {space}"
    if isinstance(space, spaces.Box):
        return _box_fault(space, value)
    return None if space.contains(value) else f"is {_kind(value)}, not in {space}"


def misfit(space: gym.Space, value: Observation) -> str | None:
    """Why `value` has another kind, shape or dtype than values of `space`; its numbers are not checked."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _fault_of_parts(misfit, space, value)
    if isinstance(space, spaces.Discrete):
        return None if _is_number(value, numbers.Integral) else f"is {_kind(value)}, not in {space}"
    if not isinstance(value, np.ndarray | np.generic):
        return f"is {_kind(value)}, not a numpy array"
    array = np.asarray(value)
    if array.shape != space.shape:
        return f"has shape {array.shape}, its space {space.shape}"
    fits = np.can_cast(array.dtype, space.dtype) if isinstance(space, spaces.Box) else array.dtype.kind in "iub"
    remedy = " (the wrapper cast_observation converts it)" if isinstance(space, spaces.Box) else ""
    return None if fits else f"has dtype {array.dtype}, its space {space.dtype}{remedy}"


def _fault_of_parts(check: Check, space: gym.Space, value: object) -> str | None:
    """The fault that `check` finds in the first faulty part of a Dict or Tuple."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, dict) or set(value) != set(space.keys()):
            return f"is {_kind(value)} with keys other than {sorted(space.keys())}"
        parts = [(f"['{key}']", part, value[key]) for key, part in space.items()]
    else:
        assert isinstance(space, spaces.Tuple)
        if not isinstance(value, tuple) or len(value) != len(space):
            return f"is {_kind(value)}, not a tuple of {len(space)}"
        parts = [(f"[{i}]", part, value[i]) for i, part in enumerate(space)]
    return next((f"{at} {problem}" for at, part, inner in parts if (problem := check(part, inner))), None)


def _box_fault(space: spaces.Box, given: Observation) -> str | None:
    problem = misfit(space, given)
    if problem:
        return problem
    value = np.asarray(given)
    if not np.isfinite(value).all():
        return "is not finite"
    outside = (value < space.low) | (value > space.high)
    if outside.any() and value.dtype.kind == "f":
        outside &= ~rounded(space, value)
    if outside.any():
        at = tuple(int(i) for i in np.argwhere(outside)[0])
        return f"has {value[at]} at {list(at)}, outside [{space.low[at]}, {space.high[at]}]"
    return None


def rounded(space: spaces.Box, value: Array) -> Array:
    """Which numbers are so near to a bound that they may have passed it by rounding."""
    limit = np.clip(value, space.low, space.high)
    apart: Array = np.abs(value - limit) <= ROUNDING * np.spacing(np.abs(limit).astype(np.float32))
    return apart


def _require(id: str, verb: str, space: gym.Space, obs: Observation) -> None:
    problem = fault(space, obs)
    if problem:
        raise _wrong(id, verb, f"returned an observation that {problem}")
    if id not in _announced and _leaves_bounds(space, obs):
        _announced.add(id)
        warn(f"{id}: observations leave their bounds by a rounding error; they are taken as they are")


def _leaves_bounds(space: gym.Space, obs: Observation) -> bool:
    """Whether a part of an observation that fits is outside the bounds of its Box."""
    parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(getattr(space, "spaces", ()))
    if isinstance(space, spaces.Box):
        return bool(((obs < space.low) | (obs > space.high)).any())
    return any(_leaves_bounds(part, obs[key]) for key, part in parts)


def _call(id: str, deadline: float, verb: str, function: Callable[[], Answer]) -> Answer:
    try:
        with Within(deadline, f"environment {id}", verb):
            return function()
    except BaseException as error:  # whatever an environment raises is reported with its traceback
        raise raised(f"environment {id}", verb, error, logged=False) from error


def _wrong(id: str, verb: str, problem: str) -> EnvironmentFailed:
    return EnvironmentFailed(
        f"environment {id}", f"{verb} {problem}", "fix the environment, or wrap it: clip_observation, cast_observation"
    )


def _kind(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__} {str(value)[:40]}"


def _is_number(value: object, kind: type = numbers.Real) -> bool:
    codes = "iu" if kind is numbers.Integral else "fiu"
    return isinstance(value, kind) or (isinstance(value, np.ndarray) and not value.shape and value.dtype.kind in codes)


def _trace(env: gym.Env, call: Callable[..., Answer], steps: int, seconds: float = math.inf) -> list[list[bytes]]:
    """Observations and rewards of an episode's first steps, with the same seed and actions every time."""

    def digest(values: Observation) -> list[bytes]:
        return [np.asarray(leaf).tobytes() for leaf in tree_leaves(values)]

    env.action_space.seed(0)
    obs, _ = call("reset", lambda: env.reset(seed=0))
    seen, begun = [digest(obs)], time.monotonic()
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = call("step", lambda: env.step(env.action_space.sample()))
        seen.append(digest((obs, reward)))
        if terminated or truncated or time.monotonic() - begun > seconds:
            break
    return seen
