"""A dense reward for MountainCar: energy, which the car has to build up before it can climb."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control import MountainCarEnv

from ludus.envs.wrappers._shaping import PotentialShaping, require
from ludus.registry import WRAPPERS

LEFT, GOAL, TOP_SPEED = -1.2, 0.5, 0.07
TOP = math.sin(3 * GOAL)


@WRAPPERS.register("mountain_car_shaping")
@WRAPPERS.register("MountainCarV0_RewardShaper")
class MountainCarShaping(PotentialShaping):
    """Potential: height, kinetic energy and position, each 0 at its best and minus its scale at its worst."""

    def __init__(
        self,
        env: gym.Env,
        gamma: float = 0.99,
        height_reward_scale: float = 20.0,
        velocity_reward_scale: float = 30.0,
        position_reward_scale: float = 0.0,
    ) -> None:
        super().__init__(env, gamma)
        require(env, "MountainCar-v0", MountainCarEnv)
        self._height, self._velocity, self._position = height_reward_scale, velocity_reward_scale, position_reward_scale

    def potential(self, obs: Any) -> float:
        place, speed = float(obs[0]), float(obs[1])
        height = (math.sin(3 * place) - TOP) / (TOP + 1)
        kinetic = (speed / TOP_SPEED) ** 2 - 1
        return self._height * height + self._velocity * kinetic + self._position * (place - GOAL) / (GOAL - LEFT)
