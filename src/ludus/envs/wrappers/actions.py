"""Wrappers that change actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.envs import Action, Options, ResetReturn, StepReturn
from ludus.envs.vector import VectorEnv, VectorWrapper
from ludus.types import Array, StepResult

Mapping = list[Any] | dict[int, Any]


class RescaleAction(gym.ActionWrapper):
    """The policy acts in [low, high], which is mapped linearly onto the environment's finite bounds."""

    def __init__(self, env: gym.Env, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, Box) or not space.is_bounded():
            raise ValueError(f"needs a bounded Box of actions, this one takes {space}")
        if low >= high:
            raise ValueError(f"low must be below high, got {low} and {high}")
        self._low, self._scale = low, (space.high - space.low) / (high - low)
        self._space = space
        self.action_space = Box(low, high, space.shape, space.dtype)

    def action(self, action: Action) -> Array:
        """The action within the environment's bounds."""
        scaled = self._space.low + (action - self._low) * self._scale
        return np.clip(scaled, self._space.low, self._space.high).astype(self._space.dtype)  # rounding may overshoot


class StickyActions(gym.Wrapper):
    """Repeats the last action with `probability`, drawn from the environment's generator (Machado et al., 2018).

    ALE has its own: environment.kwargs.repeat_action_probability.
    """

    def __init__(self, env: gym.Env, probability: float = 0.25) -> None:
        super().__init__(env)
        if not 0 <= probability < 1:
            raise ValueError(f"probability must lie in [0, 1), got {probability}")
        self._probability = probability
        self._last: Action = None

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin an episode without a last action."""
        self._last = None
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Action) -> StepReturn:
        """Step with the given action or the last one."""
        sticks = self.unwrapped.np_random.random() < self._probability
        if self._last is None or not sticks:
            self._last = action
        return self.env.step(self._last)


class RemapActions(gym.ActionWrapper):
    """The policy chooses i, the environment gets `mapping[i]`: a number, or a list if its actions are vectors."""

    def __init__(self, env: gym.Env, mapping: Mapping) -> None:
        super().__init__(env)
        self._actions = _actions(mapping, env.action_space)
        self.action_space = Discrete(len(self._actions))

    def action(self, action: Action) -> Action:
        """The environment's action."""
        return self._actions[int(action)]

    @classmethod
    def vectorize(cls, venv: VectorEnv, mapping: Mapping) -> VectorEnv:
        """The same for a whole vector at once."""
        return _RemappedVector(venv, _actions(mapping, venv.action_space))


class _RemappedVector(VectorWrapper):
    def __init__(self, inner: VectorEnv, actions: list[Action]) -> None:
        super().__init__(inner, action_space=Discrete(len(actions)))
        self._actions = np.array(actions, inner.action_space.dtype)

    def step(self, action: Array) -> StepResult:
        """Step with the actions that are meant."""
        return super().step(self._actions[action])


def _actions(mapping: Mapping, space: gym.Space) -> list[Action]:
    """The environment's actions in the order of the policy's."""
    if not mapping:
        raise ValueError("leaves no action")
    if isinstance(mapping, dict) and sorted(mapping) != list(range(len(mapping))):
        raise ValueError(f"must name the actions 0 to {len(mapping) - 1}, got {sorted(mapping)}")
    values = [mapping[i] for i in range(len(mapping))]
    actions = [int(a) if isinstance(space, Discrete) else np.array(a, space.dtype) for a in values]
    for action, value in zip(actions, values, strict=True):
        if not space.contains(np.int64(action) if isinstance(action, int) else action):
            raise ValueError(f"{value!r} is not in {space}")
    return actions
