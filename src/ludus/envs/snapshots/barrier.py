"""The method `barrier`: no snapshots, but every explicit reset makes new environments.

An environment may carry something over from one episode to the next that no seed resets (BipedalWalker's physics do).
"""

from __future__ import annotations

import gymnasium as gym

from ludus.envs.snapshots import BARRIER, Keeper, Refused
from ludus.types import State


class Barrier(Keeper):
    """Works if new environments with the same seed and actions do the same."""

    method = BARRIER
    renews = True

    def capture(self, env: gym.Env) -> State:
        raise Refused("its state cannot be read")

    def restore(self, state: State) -> gym.Env:
        raise Refused("its state cannot be read")
