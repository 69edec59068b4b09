"""The base of extractors that read a game's objects from the console's memory: 128 bytes instead of 33,600 pixels."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs.wrappers._arcade import arcade
from ludus.types import Array

WIDTH, HEIGHT = 160, 210


class Thing(NamedTuple):
    """An object on the screen; x and y of its left upper corner in pixels."""

    x: int
    y: int
    width: int
    height: int

    @property
    def center(self) -> tuple[float, float]:
        """Its middle, 0 to 1 from left to right and from top to bottom."""
        return (self.x + self.width / 2) / WIDTH, (self.y + self.height / 2) / HEIGHT


class ObjectFeatures(gym.Wrapper, abc.ABC):
    """Observations become float32 features within [-1, 1]; `info["objects"]` has the objects in pixels."""

    game: str
    names: tuple[str, ...]
    """What the features are."""

    def __init__(self, env: gym.Env, low: Array) -> None:
        super().__init__(env)
        require_game(env, self.game)
        self.observation_space = Box(low, np.ones_like(low), dtype=np.float32)
        self._low = low
        self._before: tuple[float, float] | None = None

    @abc.abstractmethod
    def objects(self, ram: Array) -> dict[str, Thing | None]:
        """What is on the screen; None: not now."""

    @abc.abstractmethod
    def features(self, ram: Array, objects: dict[str, Thing | None], speed: tuple[float, float]) -> Array:
        """float32 [D]."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        _, info = self.env.reset(seed=seed, options=options)
        self._before = None
        return self._see(info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._see(info), reward, terminated, truncated, info

    def _see(self, info: dict[str, Any]) -> Array:
        memory = ram(self)
        things = self.objects(memory)
        ball = things["ball"]
        now = ball.center if ball else None
        speed = (now[0] - self._before[0], now[1] - self._before[1]) if now and self._before else (0.0, 0.0)
        self._before = now
        info["objects"] = things
        return np.clip(self.features(memory, things, speed), self._low, 1)


def ram(env: gym.Env) -> Array:
    """The console's memory, int [128]."""
    memory: Array = arcade(env).ale.getRAM().astype(np.int64)
    return memory


def require_game(env: gym.Env, game: str) -> None:
    """Addresses are those of one cartridge."""
    found = getattr(arcade(env), "_game", None)
    if found != game:
        raise ValueError(f"knows the memory of {game}, not of {found}")
