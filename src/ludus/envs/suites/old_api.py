"""Environments of Gym before 0.26: `reset()` gives an observation, `step()` four values, `seed()` the seed.

Whoever registers one of these in Gymnasium can train in it: `adapted` tells them by their constructor.
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

CUT = "TimeLimit.truncated"
"""How old wrappers say that an episode was cut."""


def adapted(spec: EnvSpec, creator: Any, *, insist: bool = False) -> EnvSpec:
    """`spec` with an adaptor around an old environment; the very same for a new one, unless `insist`."""
    if not insist and not is_old(creator):
        return spec
    return replace(spec, entry_point=Adaptor(creator))


def is_old(creator: Any) -> bool:
    """A class that cannot be seeded by `reset`, or that knows nothing of Gymnasium."""
    if not inspect.isclass(creator) or not hasattr(creator, "reset") or not hasattr(creator, "step"):
        return False
    if not issubclass(creator, gym.Env):
        return True
    parameters = inspect.signature(creator.reset).parameters.values()
    return not any(p.name == "seed" or p.kind == p.VAR_KEYWORD for p in parameters)


class Adaptor:
    """An entry point that makes old environments and wraps them."""

    def __init__(self, creator: Callable[..., Any]) -> None:
        self.creator = creator
        old = dict(getattr(creator, "metadata", None) or {})
        self.metadata = {**old, "render_modes": old.get("render_modes", old.get("render.modes", []))}

    def __call__(self, render_mode: str | None = None, **arguments: Any) -> gym.Env:
        return OldEnv(self.creator(**arguments), render_mode, self.metadata)


class OldEnv(gym.Env):
    """One old environment behind the new interface; what already answers the new way passes."""

    def __init__(self, env: Any, render_mode: str | None, metadata: dict[str, Any]) -> None:
        self.env, self.render_mode, self.metadata = env, render_mode, metadata
        self.observation_space, self.action_space = translated(env.observation_space), translated(env.action_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None and hasattr(self.env, "seed"):
            self.env.seed(seed)
        answer = self.env.reset()
        new = isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)
        obs, info = answer if new else (answer, {})
        return self._typed(obs), dict(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        answer = self.env.step(action)
        if len(answer) == 5:
            obs, reward, terminated, truncated, info = answer
        else:
            obs, reward, done, info = answer
            truncated = bool(info.get(CUT, False))
            terminated = bool(done) and not truncated
        return self._typed(obs), float(reward), bool(terminated), bool(truncated), dict(info)

    def render(self) -> Any:
        """As the old interface does: the mode is an argument."""
        return self.env.render(mode=self.render_mode) if self.render_mode else None

    def close(self) -> None:
        getattr(self.env, "close", lambda: None)()

    def _typed(self, obs: Any) -> Any:
        """Old environments are careless about dtypes; lists and doubles become what the space says."""
        space = self.observation_space
        return np.asarray(obs, space.dtype) if isinstance(space, spaces.Box) else obs


def translated(space: Any) -> gym.Space:
    """A space of the old package as Gymnasium's; ValueError for one it has not."""
    if isinstance(space, gym.Space):
        return space
    kind = type(space).__name__
    if kind == "Box":
        return spaces.Box(space.low.astype(space.dtype), space.high.astype(space.dtype), dtype=space.dtype)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(space.nvec)
    if kind == "MultiBinary":
        return spaces.MultiBinary(space.n)
    if kind == "Dict":
        return spaces.Dict({name: translated(part) for name, part in space.spaces.items()})
    if kind == "Tuple":
        return spaces.Tuple([translated(part) for part in space.spaces])
    raise ValueError(f"an old environment with a space of type {kind}")
