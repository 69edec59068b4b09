"""Any observation of numbers as one float32 vector."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ludus.registry import WRAPPERS


@WRAPPERS.register("flatten")
@WRAPPERS.register("FlattenObservation")
class Flatten(gym.ObservationWrapper):
    """Gymnasium's flattening: boxes row by row, discretes one-hot, dicts and tuples joined."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        box = spaces.flatten_space(env.observation_space)
        if not isinstance(box, spaces.Box):
            raise ValueError(f"cannot flatten {env.observation_space}")
        self.observation_space = spaces.Box(box.low.astype(np.float32), box.high.astype(np.float32), dtype=np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        return np.asarray(spaces.flatten(self.env.observation_space, observation), np.float32)
