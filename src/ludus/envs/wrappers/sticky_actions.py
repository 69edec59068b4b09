"""Actions that sometimes stick: an environment that cannot be learned by heart."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.registry import WRAPPERS


@WRAPPERS.register("sticky_actions")
@WRAPPERS.register("StickyActions")
@WRAPPERS.register("StickyAction")
@WRAPPERS.register("StickyActionsWrapper")
class StickyActions(gym.Wrapper):
    """Does the last action again with `probability`, drawn from the environment's generator (Machado et al., 2018).

    ALE has its own: environment.kwargs.repeat_action_probability.
    """

    def __init__(self, env: gym.Env, probability: float = 0.25) -> None:
        super().__init__(env)
        if not 0 <= probability < 1:
            raise ValueError(f"probability must lie in [0, 1), got {probability}")
        self._probability = probability
        self._last: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._last = None
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        sticks = self.unwrapped.np_random.random() < self._probability
        if self._last is None or not sticks:
            self._last = action
        return self.env.step(self._last)
