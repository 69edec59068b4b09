"""Preallocated arrays of a rollout: the collector writes steps into them, and rollouts are views of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ludus.data.normalizer import ObservationNormalizer
from ludus.types import Array, tree_index, tree_leaves, tree_paths, zeros

if TYPE_CHECKING:
    from ludus.envs.vector import VectorEnv


class RolloutArrays:
    """Arrays for rollouts of up to `steps` steps."""

    def __init__(self, env: VectorEnv, steps: int, normalizer: ObservationNormalizer | None) -> None:
        batch, action = env.num_envs, env.action_space
        self.raw = zeros(env.observation_space, steps + 1, batch)
        self.obs = self.raw if normalizer is None else normalizer.storage(self.raw)
        self.leaves = list(zip(tree_paths(self.raw), tree_leaves(self.raw), strict=True))
        self.raw_rows = [tree_index(self.raw, t) for t in range(steps + 1)]
        self.obs_rows = [tree_index(self.obs, t) for t in range(steps + 1)]
        floating = np.issubdtype(action.dtype, np.floating)
        self.action = np.zeros((steps, batch, *(action.shape or ())), np.float32 if floating else np.int64)
        self.reward = np.zeros((steps, batch), np.float32)
        self.terminated, self.truncated, self.broken = np.zeros((3, steps, batch), bool)
        self.first = np.zeros((steps + 1, batch), bool)

    def columns(self, steps: int) -> dict[str, Array]:
        """What the environments returned in the first steps."""
        obs = {f"observation {path}".rstrip(): leaf[1 : steps + 1] for path, leaf in self.leaves}
        return {"reward": self.reward[:steps], **obs}
