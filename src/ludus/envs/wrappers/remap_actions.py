"""Fewer, other or combined actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete

from ludus.envs.vector import VectorEnv
from ludus.envs.vector.vector_wrapper import VectorWrapper
from ludus.registry import WRAPPERS
from ludus.types import Array, StepResult


@WRAPPERS.register("remap_actions")
@WRAPPERS.register("DiscreteActionSpaceRemapperWrapper")
class RemapActions(gym.ActionWrapper):
    """The policy chooses i, the environment gets `mapping[i]`: a number, or a list where it takes vectors."""

    def __init__(self, env: gym.Env, mapping: list[Any] | dict[int, Any]) -> None:
        super().__init__(env)
        self._actions = _actions(mapping, env.action_space)
        self.action_space = Discrete(len(self._actions))

    def action(self, action: Any) -> Any:
        return self._actions[int(action)]

    @classmethod
    def vectorize(cls, venv: VectorEnv, mapping: list[Any] | dict[int, Any]) -> VectorEnv:
        """The same for a whole vector at once."""
        return _RemappedVector(venv, _actions(mapping, venv.action_space))


class _RemappedVector(VectorWrapper):
    def __init__(self, inner: VectorEnv, actions: list[Any]) -> None:
        super().__init__(inner, inner.observation_space)
        self.info = replace(self.info, action_space=Discrete(len(actions)))
        self._actions = np.array(actions, inner.action_space.dtype)

    def step(self, action: Array) -> StepResult:
        return super().step(self._actions[action])

    def convert(self, obs: Array) -> Array:
        return obs


def _actions(mapping: list[Any] | dict[int, Any], space: gym.Space) -> list[Any]:
    values = _in_order(mapping)
    actions = [int(a) if isinstance(space, Discrete) else np.array(a, space.dtype) for a in values]
    for action, value in zip(actions, values, strict=True):
        if not space.contains(np.int64(action) if isinstance(action, int) else action):
            raise ValueError(f"{value!r} is not in {space}")
    return actions


def _in_order(mapping: list[Any] | dict[int, Any]) -> list[Any]:
    if not mapping:
        raise ValueError("leaves no action")
    if isinstance(mapping, list):
        return mapping
    if sorted(mapping) != list(range(len(mapping))):
        raise ValueError(f"must name the actions 0 to {len(mapping) - 1}, got {sorted(mapping)}")
    return [mapping[i] for i in range(len(mapping))]
