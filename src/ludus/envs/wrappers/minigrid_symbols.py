"""MiniGrid's observation as a vector: all of it, ready for fully connected layers."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs.spaces import Conversion
from ludus.envs.wrappers._minigrid import require_minigrid
from ludus.registry import WRAPPERS
from ludus.types import Array

KINDS = (11, 6, 4)
"""Objects, colours and states of a cell (an agent's state is where it looks)."""
DIRECTIONS = 4
BUCKETS = 64
"""For the words of missions that cannot be listed (BabyAI)."""


@WRAPPERS.register("minigrid_symbols")
class MiniGridSymbols(gym.ObservationWrapper):
    """One-hot cells, direction and mission, as uint8; the default for MiniGrid's ids.

    A mission out of a list is one-hot, one that never changes is left out, and of BabyAI's the words are marked, each
    in one of 64 places.
    """

    observes = True

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._symbols = _Symbols(require_minigrid(env))
        self.observation_space = self._symbols.space

    def observation(self, observation: Any) -> Array:
        image, direction = observation["image"][None], np.array([observation["direction"]])
        return self._symbols.encode(image, direction, [observation["mission"]])[0]

    @staticmethod
    def conversion(space: gym.Space) -> Conversion:
        """How EnvPool's batches cross: its missions are bytes."""
        symbols = _Symbols(space)

        def convert(obs: Any) -> Array:
            missions = [bytes(row).rstrip(b"\0").decode() for row in obs["mission"]] if symbols.reads else []
            return symbols.encode(obs["image"], obs["direction"], missions)

        return Conversion(symbols.space, convert)


class _Symbols:
    """Where the ones are."""

    def __init__(self, space: Any) -> None:
        shape, lengths = space["image"].shape or (), np.array(KINDS)
        cells = int(np.prod(shape[:2]))
        self._first = (np.cumsum([0, *lengths[:-1]]) + np.arange(cells)[:, None] * lengths.sum()).ravel()
        self._look = cells * int(lengths.sum())
        self._missions = _Missions(space["mission"])
        self.reads = self._missions.size > 0
        self.space = Box(0, 1, (self._look + DIRECTIONS + self._missions.size,), np.uint8)

    def encode(self, image_B: Array, direction_B: Array, missions: Sequence[str]) -> Array:
        """One vector for each; without `reads` the missions are not looked at."""
        rows = np.arange(len(image_B))
        vector_B = np.zeros((len(rows), *self.space.shape), np.uint8)
        vector_B[rows[:, None], self._first + image_B.reshape(len(rows), -1)] = 1
        vector_B[rows, self._look + direction_B] = 1
        for row, mission in enumerate(missions):
            vector_B[row, [self._look + DIRECTIONS + place for place in self._missions.places(mission)]] = 1
        return vector_B


class _Missions:
    def __init__(self, space: Any) -> None:
        self.size, self._known = 0, dict[str, int]()
        if type(space).__name__ != "MissionSpace":  # it makes sentences of a grammar
            self.size = BUCKETS
        elif space.ordered_placeholders:
            choices = (space.mission_func(*words) for words in itertools.product(*space.ordered_placeholders))
            self._known = {mission: i for i, mission in enumerate(dict.fromkeys(choices))}
            self.size = len(self._known) if len(self._known) > 1 else 0

    def places(self, mission: str) -> list[int]:
        """Which entries are 1."""
        if not self.size:
            return []
        return [self._known[mission]] if self._known else [zlib.crc32(w.encode()) % BUCKETS for w in mission.split()]
