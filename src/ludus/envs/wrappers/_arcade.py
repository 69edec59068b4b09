"""What wrappers for the Arcade Learning Environment ask of it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym


def arcade(env: gym.Env) -> Any:
    """The AtariEnv inside; ValueError for an environment of another kind."""
    inner: Any = env.unwrapped
    if not hasattr(inner, "ale"):
        raise ValueError(f"is for the games of ALE, not for {type(inner).__name__}")
    return inner


def meanings(env: gym.Env) -> list[str]:
    """Names of the actions of `env`, which must still be ALE's own."""
    names: list[str] = arcade(env).get_action_meanings()
    if not isinstance(env.action_space, gym.spaces.Discrete) or int(env.action_space.n) != len(names):
        raise ValueError(f"needs ALE's own {len(names)} actions, these are {env.action_space}")
    return names


def require_single_frames(env: gym.Env) -> None:
    """ALE can skip frames itself, then nobody else may."""
    skip = getattr(env.unwrapped, "_frameskip", 1)
    if skip != 1:
        raise ValueError(f"needs single frames, ALE itself skips {skip}; set environment.kwargs.frameskip to 1")
