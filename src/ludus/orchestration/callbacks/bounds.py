"""Checks whether observations stay within the bounds of their space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from ludus.orchestration.callbacks import Callback
from ludus.types import Array, space_tree, tree_leaves

if TYPE_CHECKING:
    from ludus.orchestration.orchestrator import Orchestrator


class Bounds(Callback):
    """Looks at the newest observations at the end of every epoch; only the first one out of bounds is reported."""

    def __init__(self) -> None:
        self._noted = False

    def on_epoch_end(self, run: Orchestrator) -> None:
        """Compare one step of every environment."""
        collector: Any = run.stateful.get("collector")
        if collector is None:
            return
        spaces = tree_leaves(space_tree(collector.env.observation_space))
        for space, obs in zip(spaces, tree_leaves(collector.newest_obs), strict=True):
            if not self._noted and isinstance(space, gym.spaces.Box) and space.dtype != np.uint8:
                self._compare(run, space, obs)

    def _compare(self, run: Orchestrator, space: gym.spaces.Box, obs: Array) -> None:
        collector: Any = run.stateful["collector"]
        outside = (obs < space.low) | (obs > space.high)
        if outside.any():
            self._noted = True
            b, *at = (int(i) for i in np.argwhere(outside)[0])
            low, high = space.low[tuple(at)], space.high[tuple(at)]
            found = f"{obs[(b, *at)]} at {at}, outside [{low}, {high}]"
            run.say(f"environment {b} ({collector.env.id}): its observation has {found}; its space promises less")
