"""Environments of Gym before 0.26: `reset()` returns an observation, `step()` four values, `seed()` takes the seed.

Such an environment that is registered with Gymnasium can be trained on: `adapted` recognises it by its constructor.
Shimmy has an adaptor too, but that one needs the package `gym`, which is no longer maintained.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from ludus.envs import Action, Info, Observation, Options, ResetReturn, StepReturn
from ludus.envs.catalog import Creator

CUT = "TimeLimit.truncated"
"""Key in `info` by which old wrappers report a truncation."""


class OldApi(gym.Wrapper):
    """Asks for the adaptor where an environment looks new: its `reset` takes a seed, but its `step` is the old one.

    The adaptor goes under all other wrappers, whatever the place of this one in the list; the wrapper itself changes
    nothing.
    """

    adapts = True


def adapted(spec: EnvSpec, creator: Creator, *, insist: bool = False) -> EnvSpec:
    """`spec` with an adaptor around an old environment; unchanged for a new one, unless `insist`."""
    return replace(spec, entry_point=Adaptor(creator)) if insist or is_old(creator) else spec


def is_old(creator: Creator) -> bool:
    """Whether it is a class whose `reset` takes no seed, or that is no `gymnasium.Env`."""
    if not inspect.isclass(creator) or not hasattr(creator, "reset") or not hasattr(creator, "step"):
        return False
    if not issubclass(creator, gym.Env):
        return True
    parameters = inspect.signature(creator.reset).parameters.values()
    return not any(p.name == "seed" or p.kind == p.VAR_KEYWORD for p in parameters)


class Adaptor:
    """An entry point that makes old environments and wraps them."""

    def __init__(self, creator: Creator) -> None:
        self.creator = creator
        old = dict(getattr(creator, "metadata", None) or {})
        self.metadata = {**old, "render_modes": old.get("render_modes", old.get("render.modes", []))}

    def __call__(self, render_mode: str | None = None, **arguments: object) -> gym.Env:
        """Make one environment."""
        return OldEnv(self.creator(**arguments), render_mode, self.metadata)


class OldEnv(gym.Env):
    """One old environment behind the new interface; values that have the new form already pass."""

    def __init__(self, env: Any, render_mode: str | None, metadata: Info) -> None:
        self.env, self.render_mode, self.metadata = env, render_mode, metadata
        self.observation_space, self.action_space = translated(env.observation_space), translated(env.action_space)

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Seed by `seed()`, then reset."""
        super().reset(seed=seed)
        if seed is not None and hasattr(self.env, "seed"):
            self.env.seed(seed)
        answer = self.env.reset()
        new = isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)
        obs, info = answer if new else (answer, {})
        return self._typed(obs), dict(info)

    def step(self, action: Action) -> StepReturn:
        """Divide `done` into terminated and truncated."""
        answer = self.env.step(action)
        if len(answer) == 5:
            obs, reward, terminated, truncated, info = answer
        else:
            obs, reward, done, info = answer
            truncated = bool(info.get(CUT, False))
            terminated = bool(done) and not truncated
        return self._typed(obs), float(reward), bool(terminated), bool(truncated), dict(info)

    def render(self) -> Any:
        """Pass the mode as an argument, as the old interface expects."""
        return self.env.render(mode=self.render_mode) if self.render_mode else None

    def close(self) -> None:
        """Close it, if it can be closed."""
        getattr(self.env, "close", lambda: None)()

    def _typed(self, obs: Observation) -> Observation:
        """Cast to the dtype of the space: old environments return lists and doubles."""
        space = self.observation_space
        return np.asarray(obs, space.dtype) if isinstance(space, spaces.Box) else obs


_SPACES: dict[str, Callable[[Any], gym.Space]] = {
    "Box": lambda old: spaces.Box(old.low.astype(old.dtype), old.high.astype(old.dtype), dtype=old.dtype),
    "Discrete": lambda old: spaces.Discrete(int(old.n), start=int(getattr(old, "start", 0))),
    "MultiDiscrete": lambda old: spaces.MultiDiscrete(old.nvec),
    "MultiBinary": lambda old: spaces.MultiBinary(old.n),
    "Dict": lambda old: spaces.Dict({name: translated(part) for name, part in old.spaces.items()}),
    "Tuple": lambda old: spaces.Tuple([translated(part) for part in old.spaces]),
}


def translated(space: object) -> gym.Space:
    """A space of the old package as Gymnasium's; ValueError for a kind that Gymnasium does not have."""
    if isinstance(space, gym.Space):
        return space
    kind = type(space).__name__
    if kind not in _SPACES:
        raise ValueError(f"an old environment with a space of type {kind}")
    return _SPACES[kind](space)
