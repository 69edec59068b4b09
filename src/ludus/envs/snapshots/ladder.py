"""Chooses the snapshot method for the environments of a recipe, and makes its keeper."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import gymnasium as gym

from ludus.envs.deadline import Within
from ludus.envs.failure import close
from ludus.envs.snapshots import BARRIER, NONE, Keeper, Refused, SnapshotChoice, trial
from ludus.envs.snapshots.attributes import Adapter, Api
from ludus.envs.snapshots.barrier import Barrier
from ludus.envs.snapshots.pickled import Pickled
from ludus.envs.snapshots.replay import Replay
from ludus.errors import DataError, EnvironmentFailed

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe

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
                _prove(keeper, used, watch.beat)
        except (Refused, DataError) as reason:
            refused[method] = str(reason)
        else:
            return SnapshotChoice(method, refused)
    return SnapshotChoice(NONE, refused)


def _prove(keeper: Keeper, fresh: gym.Env, beat: Callable[[], None]) -> None:
    if keeper.method == BARRIER:
        trial.repeats(fresh, keeper.make, beat=beat)
    else:
        trial.resumes(keeper, fresh, trial.EPISODES if isinstance(keeper, Replay) else 2, beat=beat)


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
