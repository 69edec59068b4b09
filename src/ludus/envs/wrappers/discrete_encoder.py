"""A discrete observation as numbers, for networks that should not one-hot it."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.registry import WRAPPERS


@WRAPPERS.register("discrete_encoder")
@WRAPPERS.register("DiscreteEncoder")
class DiscreteEncoder(gym.ObservationWrapper):
    """`array`: the number itself, `binary`: its bits (lowest first), `onehot`: a unit vector; float32 vectors all."""

    def __init__(self, env: gym.Env, encoding: Literal["array", "binary", "onehot"] = "array") -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, Discrete):
            raise ValueError(f"encodes Discrete observations, this one is {space}")
        self._start, count = int(space.start), int(space.n)
        bits = max(1, (count - 1).bit_length())
        tables: dict[str, np.ndarray] = {
            "array": np.arange(count)[:, None],
            "binary": np.arange(count)[:, None] >> np.arange(bits) & 1,
            "onehot": np.eye(count),
        }
        self._codes = tables[encoding].astype(np.float32)
        self.observation_space = Box(0.0, float(self._codes.max(initial=1)), self._codes[0].shape, np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        return self._codes[int(observation) - self._start].copy()
