"""The snapshot methods without a file of their own, and how one is chosen for the environments of a recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym

from ludus.envs.deadline import Within, close
from ludus.envs.snapshots import BARRIER, NONE, Keeper, Refused, Snapshotable, SnapshotChoice, trial
from ludus.envs.snapshots.attributes import Reference, SnapshotWriter, read
from ludus.envs.snapshots.pickled import Pickled
from ludus.envs.snapshots.replay import Replay
from ludus.errors import DataError, EnvironmentFailed
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
        own: Any = env.unwrapped
        return {"layers": SnapshotWriter(env, self._reference).write(own.snapshot_state())}

    def restore(self, state: State) -> gym.Env:
        env: Any = self.make()
        env.unwrapped.restore_state(read(env, state["layers"]))
        return env


class Barrier(Keeper):
    """No snapshots: every explicit reset makes new environments, which with the same seed and actions do the same.

    An environment may carry something over from one episode to the next that no seed resets (BipedalWalker's physics).
    """

    method, renews = BARRIER, True


KEEPERS: dict[str, type[Keeper]] = {keeper.method: keeper for keeper in (Api, Adapter, Pickled, Replay, Barrier)}
"""From the best method down."""


def choose(recipe: Recipe) -> SnapshotChoice:
    """The first method that passes its self-test; always the same one, because the seeds of the test are fixed."""
    refused: dict[str, str] = {}
    fresh: gym.Env | None = None
    for method, kind in KEEPERS.items():
        fresh = recipe.make() if fresh is None else fresh
        try:
            keeper = kind(recipe, fresh)
            used, fresh = fresh, None
            with Within(recipe.deadline, f"environment {recipe.id}", "trying out how to save it") as watch:
                if method == BARRIER:
                    trial.repeats(used, keeper.make, watch.beat)
                else:
                    trial.resumes(keeper, used, trial.EPISODES if kind is Replay else 2, watch.beat)
        except (Refused, DataError) as reason:
            refused[method] = str(reason)
        else:
            return SnapshotChoice(method, refused)
    return SnapshotChoice(NONE, refused)


def keeper(method: str, recipe: Recipe) -> Keeper:
    """The keeper of a method that was chosen."""
    fresh = recipe.make()
    try:
        return KEEPERS[method](recipe, fresh)
    except Refused as error:
        where = f"environment {recipe.id}"
        problem = f"its state can no longer be saved: {error}"
        raise EnvironmentFailed(where, problem, "make it the same way") from error
    finally:
        close(fresh, f"environment {recipe.id}", recipe.deadline)
