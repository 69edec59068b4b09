"""The arrays a vector environment lives in, in private or in shared memory alike. Shapes: B environments."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from ludus.envs.info import EnvInfo
from ludus.types import Array

ALIGNMENT = 64  # a cache line: neighbours of different workers never share one at a field's start


class Block:
    """Every array of B environments; `rows` gives the part of some of them."""

    obs: Array
    """[2, B, ...]: written in turn, so that the last observation survives a worker that dies in a step."""
    final_obs: Array
    reward: Array
    raw_reward: Array
    terminated: Array
    truncated: Array
    continues: Array
    action: Array
    seed: Array
    """Seed each environment was last reset with."""
    cursor: Array
    """First entry of a lane: the row it is working on, -1 between steps."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays
        self.__dict__.update(arrays)

    @classmethod
    def build(cls, info: EnvInfo, num_envs: int, memory: Any = None) -> Block:
        """Over `memory` (`size` bytes), or private and zeroed."""
        memory = bytearray(cls.size(info, num_envs)) if memory is None else memory
        arrays = {
            name: np.ndarray(shape, dtype, memory, offset) for name, shape, dtype, offset in _layout(info, num_envs)
        }
        return cls(arrays)

    @staticmethod
    def size(info: EnvInfo, num_envs: int) -> int:
        """Bytes of shared memory it takes."""
        *_, (_, shape, dtype, offset) = _layout(info, num_envs)
        return offset + math.prod(shape) * dtype.itemsize

    def rows(self, begin: int, end: int) -> Block:
        """Views of environments begin to end."""
        cut = {name: array[begin:end] for name, array in self._arrays.items() if name != "obs"}
        return Block({**cut, "obs": self.obs[:, begin:end]})

    def saved(self, side: int) -> dict[str, Array]:
        """What outlasts a step: the observations on `side` and the seeds, copied."""
        return {"obs": self.obs[side].copy(), "seed": self.seed.copy()}

    def restored(self, state: dict[str, Any], side: int) -> Array:
        """The observations of `saved`, on `side` again; ValueError when they are of another space."""
        obs: Array = self.obs[side]
        if state["obs"].shape != obs.shape or state["obs"].dtype != obs.dtype:
            raise ValueError(f"observations {state['obs'].shape} of {state['obs'].dtype}")
        obs[...] = state["obs"]
        self.seed[:] = state["seed"]
        return obs


class ActionBorder:
    """Brings a policy's actions into the environment's dtype and finite bounds, without touching the originals."""

    def __init__(self, space: gym.Space) -> None:
        self._bounds = (space.low, space.high) if isinstance(space, gym.spaces.Box) else None

    def write(self, action: Array, out: Array) -> None:
        """`out` = what the environments get; NaN stays NaN."""
        if self._bounds is None:
            out[...] = action
        else:
            np.maximum(action, self._bounds[0], out=out, casting="same_kind")
            np.minimum(out, self._bounds[1], out=out)


def _layout(info: EnvInfo, num_envs: int) -> Iterator[tuple[str, tuple[int, ...], np.dtype, int]]:
    obs, action = info.observation_space, info.action_space
    assert obs.shape is not None and action.shape is not None
    fields: list[tuple[str, tuple[int, ...], Any]] = [
        ("obs", (2, num_envs, *obs.shape), obs.dtype),
        ("final_obs", (num_envs, *obs.shape), obs.dtype),
        ("action", (num_envs, *action.shape), action.dtype),
        ("reward", (num_envs,), np.float32),
        ("raw_reward", (num_envs,), np.float32),
        ("terminated", (num_envs,), np.bool_),
        ("truncated", (num_envs,), np.bool_),
        ("continues", (num_envs,), np.bool_),
        ("seed", (num_envs,), np.uint64),
        ("cursor", (num_envs,), np.int64),
    ]
    offset = 0
    for name, shape, dtype in fields:
        yield name, shape, np.dtype(dtype), offset
        offset += -(-math.prod(shape) * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT
