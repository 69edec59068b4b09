"""A denser reward for Pong: the paddle near the ball."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.envs.wrappers._objects import ram, require_game
from ludus.envs.wrappers._shaping import PotentialShaping
from ludus.envs.wrappers.pong_features import objects
from ludus.registry import WRAPPERS


@WRAPPERS.register("pong_shaping")
@WRAPPERS.register("PongShaping")
@WRAPPERS.register("PongV5_RewardShaper")
class PongShaping(PotentialShaping):
    """Potential: 0 when the player's paddle is level with the ball, or there is none, down to minus the scale."""

    def __init__(self, env: gym.Env, gamma: float = 0.99, tracking_reward_scale: float = 0.5) -> None:
        super().__init__(env, gamma)
        require_game(env, "pong")
        self._scale = tracking_reward_scale

    def potential(self, obs: Any) -> float:
        things = objects(ram(self))
        player, ball = things["player"], things["ball"]
        return -self._scale * abs(ball.center[1] - player.center[1]) if player and ball else 0.0
