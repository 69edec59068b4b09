"""Environments that misbehave, loaded by `--plugin`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

HUGE = 3e38
"""Finite, but its square is not."""


class Extreme(gym.Env):
    """Pays (or shows) a huge number at some of its steps, counted over all episodes."""

    def __init__(self, at: tuple[int, ...] = (), every: int = 0, where: str = "reward") -> None:
        self.at, self.every, self.where = set(at), every, where
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = Discrete(2)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._look(False), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        huge = self.steps in self.at or bool(self.every and self.steps % self.every == 0)
        reward = HUGE if huge and self.where == "reward" else float(action)
        return self._look(huge and self.where == "observation"), reward, self.steps % 10 == 0, False, {}

    def _look(self, huge: bool) -> np.ndarray:
        return np.full(3, HUGE, np.float32) if huge else self.np_random.normal(size=3).astype(np.float32)


class Pixels(gym.Env):
    """Small images."""

    def __init__(self) -> None:
        self.observation_space = Box(0, 255, (36, 36, 3), np.uint8)
        self.action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self._look(), 0.0, bool(self.np_random.random() < 0.1), False, {}

    def _look(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (36, 36, 3), np.uint8)


class Objects(gym.Env):
    """Its state is a Python object nobody knows, so that only a pickle can keep it."""

    def __init__(self) -> None:
        self.observation_space = Box(-1, 1, (2,), np.float32)
        self.action_space = Discrete(2)
        self.chain: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.chain = [Link(0, None)]
        return self._look(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.chain.append(Link(int(action), self.chain[-1]))
        return self._look(), 1.0, len(self.chain) > 20, False, {}

    def _look(self) -> np.ndarray:
        return np.array([len(self.chain) / 50, self.np_random.uniform(-1, 1)], np.float32)


class Link:
    """One of a chain."""

    def __init__(self, action: int, before: Link | None) -> None:
        self.action, self.before = action, before


classes: dict[str, Any] = {"Extreme": Extreme, "Pixels": Pixels, "Objects": Objects}
for name, cls in classes.items():
    if f"Faulty/{name}-v0" not in gym.registry:
        gym.register(f"Faulty/{name}-v0", cls, max_episode_steps=100)
