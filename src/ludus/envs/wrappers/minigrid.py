"""Wrappers that convert MiniGrid's observation: a symbolic image, a direction and a mission."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict

from ludus.envs import Observation
from ludus.envs.wrappers.observations import observation_wrapper
from ludus.spaces import Conversion, observation_conversion
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
    parts, lengths = _parts(space), np.array(KINDS)
    cells = int(np.prod(parts["image"].shape[:2]))
    first = (np.cumsum([0, *lengths[:-1]]) + np.arange(cells)[:, None] * lengths.sum()).ravel()
    look = cells * int(lengths.sum())
    size, places = _missions(parts["mission"])
    box = Box(0, 1, (look + DIRECTIONS + size,), np.uint8)

    def encode(image_B: Array, direction_B: Array, missions: Sequence[str]) -> Array:
        """One vector for each row."""
        rows = np.arange(len(image_B))
        vector_B = np.zeros((len(rows), *box.shape), np.uint8)
        vector_B[rows[:, None], first + image_B.reshape(len(rows), -1)] = 1
        vector_B[rows, look + direction_B] = 1
        for row, mission in enumerate(missions):
            vector_B[row, [look + DIRECTIONS + place for place in places(mission)]] = 1
        return vector_B

    def convert(obs: Observation) -> Array:
        """A vector for one observation, or for each of EnvPool's, whose missions are bytes."""
        if isinstance(obs["mission"], str):
            return encode(obs["image"][None], np.array([obs["direction"]]), [obs["mission"]])[0]
        missions = [bytes(row).rstrip(b"\0").decode() for row in obs["mission"]] if size else []
        return encode(obs["image"], obs["direction"], missions)

    return Conversion(box, convert)


def _missions(space: Any) -> tuple[int, Callable[[str], list[int]]]:
    """How many entries missions take, and which of them are 1."""
    if type(space).__name__ != "MissionSpace":  # sentences made by a grammar
        return BUCKETS, lambda mission: [zlib.crc32(word.encode()) % BUCKETS for word in mission.split()]
    words = space.ordered_placeholders
    choices = [space.mission_func(*chosen) for chosen in itertools.product(*words)] if words else []
    known = {mission: i for i, mission in enumerate(dict.fromkeys(choices))}
    return (len(known), lambda mission: [known[mission]]) if len(known) > 1 else (0, lambda _: [])


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
