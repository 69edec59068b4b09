"""The meter under all wrappers: what the environment itself paid."""

from __future__ import annotations

from typing import Any

import gymnasium as gym


class RawReward(gym.Wrapper):
    """Sums the rewards of the environment itself until they are taken, so that no wrapper can hide them.

    A sum, because a wrapper may take several steps of the environment for one of its own.
    """

    _paid = 0.0

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._paid += float(reward)
        info["raw_reward"] = reward
        return obs, reward, terminated, truncated, info

    def take(self) -> float:
        """Paid since the last call."""
        paid, self._paid = self._paid, 0.0
        return paid

    @classmethod
    def inside(cls, env: gym.Env) -> RawReward | None:
        """The meter among the wrappers of `env`."""
        while isinstance(env, gym.Wrapper):
            if isinstance(env, cls):
                return env
            env = env.env
        return None
