"""A lost life is the end, for the learner."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.envs.wrappers._arcade import arcade
from ludus.registry import WRAPPERS


@WRAPPERS.register("episodic_life")
@WRAPPERS.register("EpisodicLife")
@WRAPPERS.register("EpisodicLifeEnv")
class EpisodicLife(gym.Wrapper):
    """Terminates where a life is lost; the next episode goes on in the same game, from what was seen last.

    Logged and evaluated episodes are whole games all the same (`VectorEnv.continues`).
    """

    life_lost = False
    """The episode that has just ended was a life: the game goes on."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        arcade(env)
        self._lives = 0
        self._last: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        goes_on = self.life_lost and seed is None
        obs, info = (self._last, {}) if goes_on else self.env.reset(seed=seed, options=options)
        self.life_lost, self._last = False, None
        self._lives = arcade(self).ale.lives()
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        lives = arcade(self).ale.lives()
        # Some games show no life left for a few frames before they are over.
        self.life_lost = 0 < lives < self._lives and not (terminated or truncated)
        self._lives = lives
        self._last = obs if self.life_lost else None
        return obs, reward, terminated or self.life_lost, truncated, info

    @classmethod
    def inside(cls, env: gym.Env) -> EpisodicLife | None:
        """The one among the wrappers of `env`."""
        while isinstance(env, gym.Wrapper):
            if isinstance(env, cls):
                return env
            env = env.env
        return None
