"""Episodes that do not all begin alike."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.registry import WRAPPERS


@WRAPPERS.register("noop_reset")
@WRAPPERS.register("NoopReset")
@WRAPPERS.register("NoopResetEnv")
class NoopReset(gym.Wrapper):
    """Up to `noop_max` steps of action 0 at the beginning, a number drawn from the environment's generator."""

    def __init__(self, env: gym.Env, noop_max: int = 30) -> None:
        super().__init__(env)
        if noop_max < 0:
            raise ValueError(f"noop_max must be 0 or more, got {noop_max}")
        if not isinstance(env.action_space, gym.spaces.Discrete):
            raise ValueError(f"needs an action that does nothing, this one takes {env.action_space}")
        self._noop_max = noop_max

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        for _ in range(int(self.unwrapped.np_random.integers(self._noop_max + 1))):
            obs, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                obs, info = self.env.reset()
        return obs, info
