"""The methods `api` and `adapter`: the environment by its own methods or by its attributes, wrappers by attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium as gym

from ludus.envs.snapshots import Keeper, Refused, Snapshotable
from ludus.envs.snapshots.reference import Reference
from ludus.envs.snapshots.stack import SnapshotWriter, read
from ludus.types import State

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe


class Adapter(Keeper):
    """Classic control, toy text, MuJoCo, ALE, and every environment made of plain attributes."""

    method = "adapter"

    def __init__(self, recipe: Recipe, fresh: gym.Env) -> None:
        super().__init__(recipe, fresh)
        if hasattr(fresh.unwrapped, "ale") and getattr(fresh.unwrapped, "continuous", False):
            raise Refused("nothing tells the strength of the action that ALE would repeat")
        self._reference = Reference(fresh)

    def capture(self, env: gym.Env) -> State:
        return {"layers": SnapshotWriter(env, self._reference).write()}

    def restore(self, state: State) -> gym.Env:
        env = self.make()
        read(env, state["layers"])
        return env


class Api(Adapter):
    """Environments that are `Snapshotable`."""

    method = "api"

    def __init__(self, recipe: Recipe, fresh: gym.Env) -> None:
        if not isinstance(fresh.unwrapped, Snapshotable):
            raise Refused("it has no snapshot_state and restore_state")
        super().__init__(recipe, fresh)

    def capture(self, env: gym.Env) -> State:
        return {"layers": SnapshotWriter(env, self._reference).write(_own(env).snapshot_state())}

    def restore(self, state: State) -> gym.Env:
        env = self.make()
        _own(env).restore_state(read(env, state["layers"]))
        return env


def _own(env: gym.Env) -> Snapshotable:
    inner = env.unwrapped
    assert isinstance(inner, Snapshotable)
    return inner
