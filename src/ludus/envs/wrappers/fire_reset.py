"""Games that wait for the FIRE button begin at once."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.envs.wrappers._arcade import meanings
from ludus.registry import WRAPPERS


@WRAPPERS.register("fire_reset")
@WRAPPERS.register("FireReset")
@WRAPPERS.register("FireResetEnv")
class FireReset(gym.Wrapper):
    """Presses FIRE once after every reset, where the game has that action; outside of `episodic_life` in every life."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        names = meanings(env)
        self._fire = names.index("FIRE") if "FIRE" in names else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        if self._fire is None:
            return obs, info
        obs, _, terminated, truncated, info = self.env.step(self._fire)
        return self.env.reset() if terminated or truncated else (obs, info)
