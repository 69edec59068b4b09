"""Only some of a game's buttons."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.envs.wrappers._arcade import meanings
from ludus.registry import WRAPPERS
from ludus.text import did_you_mean


@WRAPPERS.register("ale_action_masking")
@WRAPPERS.register("ALEActionMasking")
@WRAPPERS.register("ALEActionMaskingWrapper")
class ALEActionMasking(gym.ActionWrapper):
    """The policy chooses among `actions`, named as ALE does: NOOP, FIRE, UP, RIGHTFIRE."""

    def __init__(self, env: gym.Env, actions: list[str]) -> None:
        super().__init__(env)
        names = meanings(env)
        if not actions or len(set(actions)) != len(actions):
            raise ValueError(f"actions must be different names, got {actions}")
        for name in actions:
            if name not in names:
                raise ValueError(f"the game has no action {name}; {did_you_mean(name, names)}")
        self._actions = [names.index(name) for name in actions]
        self.action_space = gym.spaces.Discrete(len(actions))

    def action(self, action: Any) -> int:
        return self._actions[int(action)]
