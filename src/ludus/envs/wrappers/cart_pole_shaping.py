"""A denser reward for CartPole: upright and centred."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

from ludus.envs.wrappers._shaping import PotentialShaping, require
from ludus.registry import WRAPPERS


@WRAPPERS.register("cart_pole_shaping")
@WRAPPERS.register("CartPoleV1_RewardShaper")
class CartPoleShaping(PotentialShaping):
    """Potential: how far angle and position are from their limits, each 1 at the centre and 0 at the limit."""

    def __init__(
        self,
        env: gym.Env,
        gamma: float = 0.99,
        angle_reward_scale: float = 1.0,
        position_reward_scale: float = 0.25,
    ) -> None:
        super().__init__(env, gamma)
        require(env, "CartPole", CartPoleEnv)
        inner: Any = env.unwrapped
        self._limits = (inner.x_threshold, inner.theta_threshold_radians)
        self._angle, self._position = angle_reward_scale, position_reward_scale

    def potential(self, obs: Any) -> float:
        position, angle = 1 - abs(float(obs[0])) / self._limits[0], 1 - abs(float(obs[2])) / self._limits[1]
        return self._angle * angle + self._position * position
