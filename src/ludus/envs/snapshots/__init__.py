"""Saving and restoring the state of ONE environment with its wrappers, exact to the bit.

The methods, best first; the first one that passes the self-test of `trial` is used:
api      the environment offers `Snapshotable`
adapter  every attribute of the environment and of its wrappers is data, a random generator or a part we know
pickle   the environment object itself, sealed with a key of this user: never portable
replay   the random generators at the beginning of the episode, and the actions since
barrier  no state at all: new environments with derived seeds at every checkpoint, before and after a resume alike
none     not even that repeats itself
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, runtime_checkable

import gymnasium as gym

from ludus.types import State

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe

BARRIER, NONE = "barrier", "none"
UNSAVED = (BARRIER, NONE)
"""Methods without a snapshot."""


@runtime_checkable
class Snapshotable(Protocol):
    """Methods by which an environment (not a wrapper) saves itself; `np_random` is saved for it."""

    def snapshot_state(self) -> State:
        """Everything that later steps depend on: numbers, strings, arrays and containers of them."""

    def restore_state(self, state: State) -> None:
        """Go on from a saved state; called on a new environment that was never reset."""


class Refused(Exception):
    """Why a method does not work."""


class SnapshotChoice(NamedTuple):
    """A method, why better ones were refused, and the seconds of a step if that made the self-test shorter."""

    method: str
    refused: dict[str, str]
    slow: float = 0.0


class Keeper:
    """Saves and restores environments of one recipe, if its method can."""

    method: ClassVar[str]
    renews: ClassVar[bool] = False
    """Whether every explicit reset makes new environments."""

    def __init__(self, recipe: Recipe, fresh: gym.Env) -> None:
        """`fresh` is a new environment to inspect; raises Refused if the method cannot work for it."""
        self.make = recipe.make
        self.id = recipe.id

    def attach(self, env: gym.Env) -> gym.Env:
        """`env`, wrapped if the method has to record it; step this one from now on."""
        return env

    def capture(self, env: gym.Env) -> State:
        """The state of an attached environment, as `ludus.archive.tree` can store it."""
        raise Refused("its state cannot be read")

    def restore(self, state: State) -> gym.Env:
        """A new, attached environment that goes on from `state`."""
        raise Refused("its state cannot be read")
