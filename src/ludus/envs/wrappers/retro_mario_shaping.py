"""A reward for Super Mario Bros. that pays for getting on."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.registry import WRAPPERS

GAME = "SuperMarioBros-Nes"
PAGE = 256
"""Pixels of a screen page: the game counts them in one byte and the pages in another."""
JUMP = 128
"""Pixels nobody runs in a step: a new level or life has begun."""


@WRAPPERS.register("retro_mario_shaping")
@WRAPPERS.register("RetroSuperMarioBros_RewardShaper")
class RetroMarioShaping(gym.Wrapper):
    """Pays for pixels to the right, points, coins and levels, charges for steps and lost lives.

    It takes the place of the game's own reward, which falls by 255 at every page: `raw_reward` still has that one.
    """

    def __init__(
        self,
        env: gym.Env,
        progress: float = 0.1,
        score: float = 0.01,
        coin: float = 0.0,
        level: float = 50.0,
        death: float = -25.0,
        step: float = -0.01,
    ) -> None:
        super().__init__(env)
        game = str(getattr(env.unwrapped, "game", ""))
        if not game.startswith(GAME):
            raise ValueError(f"is for Retro/{GAME}, not for {game or type(env.unwrapped).__name__}")
        self._weights = {"progress": progress, "score": score, "coins": coin, "level": level}
        self._death, self._step = death, step
        self._before: dict[str, int] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._before = {}
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        before, self._before = self._before or _counts(info), _counts(info)
        change = {name: self._before[name] - before[name] for name in before}
        if abs(change["progress"]) > JUMP:
            change["progress"] = 0
        gained = sum(weight * change[name] for name, weight in self._weights.items())
        gained += self._step + (self._death if change["lives"] < 0 else 0.0)
        info.setdefault("raw_reward", reward)
        return obs, gained, terminated, truncated, info


def _counts(info: dict[str, Any]) -> dict[str, int]:
    """What the game has counted so far; the first step of an episode has nothing to compare with."""
    return {
        "progress": PAGE * int(info["xscrollHi"]) + int(info["xscrollLo"]),
        "score": int(info["score"]),
        "coins": int(info["coins"]),
        "level": 4 * int(info["levelHi"]) + int(info["levelLo"]),
        "lives": int(info["lives"]),
    }
