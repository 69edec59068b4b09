"""Checks whether observations stay within the bounds of their space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np

from ludus.orchestration.callbacks import Callback

if TYPE_CHECKING:
    from ludus.run import Run


class Bounds(Callback):
    """Looks at the newest observations at the end of every epoch; only the first one out of bounds is reported."""

    def __init__(self) -> None:
        self._noted = False

    def on_epoch_end(self, run: Run) -> None:
        """Compare one step of every environment."""
        collector, space = run.collector, run.spaces.observation
        if self._noted or collector is None or not isinstance(space, gym.spaces.Box) or space.dtype == np.uint8:
            return
        obs = collector.newest_obs
        outside = (obs < space.low) | (obs > space.high)
        if outside.any():
            self._noted = True
            b, *at = (int(i) for i in np.argwhere(outside)[0])
            low, high = space.low[tuple(at)], space.high[tuple(at)]
            found = f"{obs[(b, *at)]} at {at}, outside [{low}, {high}]"
            run.say(f"environment {b} ({collector.env.id}): its observation has {found}; its space promises less")
