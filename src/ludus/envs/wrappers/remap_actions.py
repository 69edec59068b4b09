"""Fewer, other or combined actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete

from ludus.registry import WRAPPERS


@WRAPPERS.register("remap_actions")
@WRAPPERS.register("DiscreteActionSpaceRemapperWrapper")
class RemapActions(gym.ActionWrapper):
    """The policy chooses i, the environment gets `mapping[i]`: a number, or a list where it takes vectors."""

    def __init__(self, env: gym.Env, mapping: list[Any] | dict[int, Any]) -> None:
        super().__init__(env)
        actions = _in_order(mapping)
        space = env.action_space
        self._actions = [int(a) if isinstance(space, Discrete) else np.array(a, space.dtype) for a in actions]
        for action, value in zip(self._actions, actions, strict=True):
            if not space.contains(np.int64(action) if isinstance(action, int) else action):
                raise ValueError(f"{value!r} is not in {space}")
        self.action_space = Discrete(len(self._actions))

    def action(self, action: Any) -> Any:
        return self._actions[int(action)]


def _in_order(mapping: list[Any] | dict[int, Any]) -> list[Any]:
    if not mapping:
        raise ValueError("leaves no action")
    if isinstance(mapping, list):
        return mapping
    if sorted(mapping) != list(range(len(mapping))):
        raise ValueError(f"must name the actions 0 to {len(mapping) - 1}, got {sorted(mapping)}")
    return [mapping[i] for i in range(len(mapping))]
