"""A denser reward for ViZDoom: what the game counts, as it changes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.envs.suites.vizdoom import VizDoom
from ludus.envs.wrappers._shaping import require
from ludus.registry import WRAPPERS

WEIGHTS = {"KILLCOUNT": 1.0, "DAMAGECOUNT": 0.01, "DAMAGE_TAKEN": -0.01, "HEALTH": 0.01}


@WRAPPERS.register("vizdoom_shaping")
@WRAPPERS.register("VizDoom_RewardShaper")
class VizDoomShaping(gym.Wrapper):
    """Adds weight * change of every game variable in `variables`, and `attack` for every step that holds it down.

    Not potential-based: it may change what is best. Discrete and MultiBinary actions alike.
    """

    def __init__(self, env: gym.Env, variables: dict[str, float] | None = None, attack: float = 0.0) -> None:
        super().__init__(env)
        require(env, "VizDoom", VizDoom)
        inner: Any = env.unwrapped
        self._game: VizDoom = inner
        self._weights = WEIGHTS if variables is None else variables
        self._attack = attack
        if attack and "ATTACK" not in self._game.buttons:
            raise ValueError("attack: this scenario has no button ATTACK")
        self._before = dict.fromkeys(self._weights, 0.0)
        _require_known(self._weights)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._before = self._counts()
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        before, self._before = self._before, self._counts()
        gained = sum(weight * (self._before[name] - before[name]) for name, weight in self._weights.items())
        if self._attack and self._game.pressed(action)[self._game.buttons.index("ATTACK")]:
            gained += self._attack
        info.setdefault("raw_reward", reward)
        return obs, float(reward) + gained, terminated, truncated, info

    def _counts(self) -> dict[str, float]:
        return {name: self._game.variable(name) for name in self._weights}


def _require_known(names: Any) -> None:
    import vizdoom

    for name in names:
        if name not in vizdoom.GameVariable.__members__:
            raise ValueError(f"variables: '{name}' is no game variable of ViZDoom")
