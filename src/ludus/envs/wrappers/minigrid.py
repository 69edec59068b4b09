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
from ludus.envs.wrappers.observations import observation_wrapper
from ludus.types import Array

KINDS = (11, 6, 4)
"""Objects, colours and states of a cell (an agent's state is where it looks)."""
DIRECTIONS = 4
BUCKETS = 64
"""For the words of missions that cannot be listed (BabyAI)."""
LARGEST_CODE = 10
"""Of an object, a colour or a state."""


def _parts(space: gym.Space) -> Any:
    """The observation space of a MiniGrid environment, after a check that it is one."""
    if not isinstance(space, Dict) or set(space.keys()) != {"image", "direction", "mission"}:
        raise ValueError(f"is for MiniGrid and comes first, the observation is {space}")
    return space


@observation_wrapper
def minigrid_image(space: gym.Space) -> Conversion:
    """Object, colour and state of the cells in view, uint8 3x7x7; direction and mission are dropped.

    MiniGrid's own space reaches to 255, as if these codes were brightness.
    """
    codes = Box(0, LARGEST_CODE, _parts(space)["image"].shape, np.uint8)
    move = observation_conversion(codes, "MiniGrid")
    return Conversion(move.space, lambda obs: move(obs["image"]))


@observation_wrapper
def minigrid_symbols(space: gym.Space) -> Conversion:
    """One-hot cells, direction and mission, as uint8; the default for MiniGrid's ids.

    A mission out of a list is one-hot; one that never changes is left out; of BabyAI's the words are marked, each in
    one of 64 places.
    """
    symbols = _Symbols(_parts(space))

    def convert(obs: Observation) -> Array:
        """A vector for one observation, or for each of EnvPool's, whose missions are bytes."""
        if isinstance(obs["mission"], str):
            return symbols.encode(obs["image"][None], np.array([obs["direction"]]), [obs["mission"]])[0]
        missions = [bytes(row).rstrip(b"\0").decode() for row in obs["mission"]] if symbols.reads else []
        return symbols.encode(obs["image"], obs["direction"], missions)

    return Conversion(symbols.space, convert)


minigrid_image.observes = minigrid_symbols.observes = True


class MiniGridRGB(gym.ObservationWrapper):
    """The agent's view drawn with `tile_size` pixels per cell; with `agent_view_size: 3` and 28 it is 84x84."""

    observes = True

    def __init__(self, env: gym.Env, tile_size: int = 8) -> None:
        super().__init__(env)
        if tile_size < 1:
            raise ValueError(f"tile_size must be at least 1, got {tile_size}")
        rows, columns, _ = _parts(env.observation_space)["image"].shape
        self._tile = tile_size
        self.observation_space = Box(0, 255, (rows * tile_size, columns * tile_size, 3), np.uint8)

    def observation(self, observation: Observation) -> Array:
        """uint8 [H, W, 3]."""
        game: Any = self.env.unwrapped
        frame: Array = game.get_frame(tile_size=self._tile, agent_pov=True)
        return frame


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
