"""Wrappers that convert MiniGrid's observation: a symbolic image, a direction and a mission."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict

from ludus.envs import Observation
from ludus.envs.spaces import Conversion, observation_conversion
from ludus.types import Array

KINDS = (11, 6, 4)
"""Objects, colours and states of a cell (an agent's state is where it looks)."""
DIRECTIONS = 4
BUCKETS = 64
"""For the words of missions that cannot be listed (BabyAI)."""
LARGEST_CODE = 10
"""Of an object, a colour or a state."""


def _parts(env: gym.Env) -> Any:
    """The observation space of a MiniGrid environment: image, direction and mission."""
    space = env.observation_space
    if not isinstance(space, Dict) or set(space.keys()) != {"image", "direction", "mission"}:
        raise ValueError(f"is for MiniGrid and comes first, the observation is {space}")
    return space


class MiniGridImage(gym.ObservationWrapper):
    """Object, colour and state of the cells in view, uint8 7x7x3; direction and mission are dropped.

    MiniGrid's own space reaches to 255, as if these codes were brightness.
    """

    observes = True

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.observation_space = _codes(_parts(env)["image"])

    def observation(self, observation: Observation) -> Array:
        """The image alone."""
        image: Array = observation["image"]
        return image

    @staticmethod
    def conversion(space: gym.Space) -> Conversion:
        """How EnvPool's batches are converted."""
        image = observation_conversion(_codes(space["image"]), "MiniGrid")  # type: ignore[index]
        move = image.convert or (lambda value: value)
        return Conversion(image.space, lambda obs: move(obs["image"]))


def _codes(space: gym.Space) -> Box:
    return Box(0, LARGEST_CODE, space.shape, np.uint8)


class MiniGridRGB(gym.ObservationWrapper):
    """The agent's view drawn with `tile_size` pixels per cell; with `agent_view_size: 3` and 28 it is 84x84."""

    observes = True

    def __init__(self, env: gym.Env, tile_size: int = 8) -> None:
        super().__init__(env)
        if tile_size < 1:
            raise ValueError(f"tile_size must be at least 1, got {tile_size}")
        rows, columns, _ = _parts(env)["image"].shape
        self._tile = tile_size
        self.observation_space = Box(0, 255, (rows * tile_size, columns * tile_size, 3), np.uint8)

    def observation(self, observation: Observation) -> Array:
        """uint8 [H, W, 3]."""
        game: Any = self.env.unwrapped
        frame: Array = game.get_frame(tile_size=self._tile, agent_pov=True)
        return frame


class MiniGridSymbols(gym.ObservationWrapper):
    """One-hot cells, direction and mission, as uint8; the default for MiniGrid's ids.

    A mission out of a list is one-hot; one that never changes is left out; of BabyAI's the words are marked, each in
    one of 64 places.
    """

    observes = True

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._symbols = _Symbols(_parts(env))
        self.observation_space = self._symbols.space

    def observation(self, observation: Observation) -> Array:
        """uint8 [D]."""
        image, direction = observation["image"][None], np.array([observation["direction"]])
        return self._symbols.encode(image, direction, [observation["mission"]])[0]

    @staticmethod
    def conversion(space: gym.Space) -> Conversion:
        """How EnvPool's batches are converted: its missions are bytes."""
        symbols = _Symbols(space)

        def convert(obs: Observation) -> Array:
            """uint8 [B, D]."""
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
        """One vector for each row; without `reads` the missions are not looked at."""
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
        if type(space).__name__ != "MissionSpace":  # sentences made by a grammar
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
