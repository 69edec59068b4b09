"""The arrays of a vector environment, in private or in shared memory alike. Shapes: B environments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from mmap import mmap

import gymnasium as gym
import numpy as np

from ludus.envs.spaces import EnvInfo
from ludus.types import Array, State, StepResult, Tree, space_tree, tree_index, tree_leaves, tree_map

ALIGNMENT = 64  # a cache line: fields that different workers write never share one


class VectorArrays:
    """Every array of B environments; `rows` gives the views of some of them."""

    obs: Tree
    """[2, B, ...]: steps write the sides in turn: the last observation survives a worker that dies in a step."""
    final_obs: Tree
    reward: Array
    raw_reward: Array
    terminated: Array
    truncated: Array
    continues: Array
    action: Array
    seed: Array
    """Seed each environment was last reset with."""
    cursor: Array
    """First entry of a stepper: the row it is working on, -1 between steps."""

    def __init__(self, arrays: dict[str, Tree]) -> None:
        self._arrays = arrays
        self.__dict__.update(arrays)
        self.sides = tuple(tree_index(arrays["obs"], side) for side in (0, 1))
        """The two sides of `obs`, each [B, ...]."""

    @classmethod
    def build(cls, info: EnvInfo, num_envs: int, memory: bytearray | mmap | None = None) -> VectorArrays:
        """Over `memory` (`size` bytes), or private and zeroed."""
        memory, offset = bytearray(cls.size(info, num_envs)) if memory is None else memory, 0

        def place(slot: Slot) -> Array:
            nonlocal offset
            array: Array = np.ndarray(slot.shape, slot.dtype, memory, offset)
            offset += slot.room
            return array

        return cls({name: tree_map(place, tree) for name, tree in _fields(info, num_envs).items()})

    @staticmethod
    def size(info: EnvInfo, num_envs: int) -> int:
        """Bytes of shared memory it takes."""
        return sum(slot.room for tree in _fields(info, num_envs).values() for slot in tree_leaves(tree))

    def rows(self, begin: int, end: int) -> VectorArrays:
        """Views of environments begin to end."""
        cut = {name: tree_index(tree, slice(begin, end)) for name, tree in self._arrays.items() if name != "obs"}
        return VectorArrays({**cut, "obs": tree_index(self.obs, (slice(None), slice(begin, end)))})

    def result(self, side: int, finished: bool, broken: Array | None = None) -> StepResult:
        """What the arrays say about a step whose observations are on `side`; `finished`: an episode ended."""
        return StepResult(
            self.sides[side],
            self.reward,
            self.terminated,
            self.truncated,
            self.final_obs if finished else None,
            self.raw_reward,
            broken,
            self.continues if finished and self.continues.any() else None,
        )

    def saved(self, side: int) -> State:
        """Copies of what the next step needs: the observations on `side`, and the seeds."""
        return {"obs": tree_map(np.copy, self.sides[side]), "seed": self.seed.copy()}

    def restored(self, state: State, side: int) -> Tree:
        """The observations of `saved`, on `side` again; ValueError if they belong to another space."""
        tree_map(_restore, self.sides[side], state["obs"])
        self.seed[:] = state["seed"]
        return self.sides[side]


def _restore(target: Array, saved: Array) -> None:
    if saved.shape != target.shape or saved.dtype != target.dtype:
        raise ValueError(f"observations {saved.shape} of {saved.dtype}")
    target[...] = saved


class ActionClipper:
    """Brings a policy's actions into the environment's dtype and finite bounds; the originals stay unchanged."""

    def __init__(self, space: gym.Space) -> None:
        self._bounds = (space.low, space.high) if isinstance(space, gym.spaces.Box) else None

    def write(self, action: Array, out: Array) -> None:
        """Write what the environments get into `out`; NaN stays NaN."""
        if self._bounds is None:
            out[...] = action
        else:
            np.maximum(action, self._bounds[0], out=out, casting="same_kind")
            np.minimum(out, self._bounds[1], out=out)


@dataclass(frozen=True)
class Slot:
    """Type and shape of an array that may be too large to be made."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def room(self) -> int:
        """Bytes, up to whole cache lines."""
        return -(-self.dtype.itemsize * math.prod(self.shape) // ALIGNMENT) * ALIGNMENT


def _fields(info: EnvInfo, num_envs: int) -> dict[str, Tree]:
    """Every array's type and whole shape."""

    def slots(space: gym.Space, *batch: int) -> Tree:
        return tree_map(lambda leaf: Slot(np.dtype(leaf.dtype), (*batch, *leaf.shape)), space_tree(space))

    def per_row(kind: type, *names: str) -> dict[str, Slot]:
        return dict.fromkeys(names, Slot(np.dtype(kind), (num_envs,)))

    return {
        "obs": slots(info.observation_space, 2, num_envs),
        "final_obs": slots(info.observation_space, num_envs),
        "action": slots(info.action_space, num_envs),
        **per_row(np.float32, "reward", "raw_reward"),
        **per_row(np.bool_, "terminated", "truncated", "continues"),
        **per_row(np.uint64, "seed"),
        **per_row(np.int64, "cursor"),
    }
