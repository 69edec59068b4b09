"""The state of ONE environment with its wrappers, taken and given back to the last bit.

The ladder (DESIGN section 7); the first method that passes the self-test of `trial` is the one that is used:
api      the environment offers `Snapshotable`
adapter  every attribute of the environment and of its wrappers is data, a random generator or a part we know
pickle   the environment object itself, sealed with a key of this user: never portable
replay   the random generators at the beginning of the episode, and the actions since
barrier  no state at all: new environments with derived seeds at every checkpoint, before and after a resume alike
none     not even that repeats itself
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import gymnasium as gym

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe

BARRIER, NONE = "barrier", "none"
UNSAVED = (BARRIER, NONE)
"""Methods without a snapshot."""


@runtime_checkable
class Snapshotable(Protocol):
    """What an environment (not a wrapper) may offer to be saved by its own means; `np_random` is taken care of."""

    def snapshot_state(self) -> dict[str, Any]:
        """Everything its future follows from: numbers, strings, arrays and containers of them."""

    def restore_state(self, state: dict[str, Any]) -> None:
        """Go on from there; called on a new environment that was never reset."""


class Refused(Exception):
    """Why a method does not hold."""


class SnapshotChoice(NamedTuple):
    """A method, and why the ones above it were refused."""

    method: str
    refused: dict[str, str]


class Keeper(abc.ABC):
    """Takes and gives back the state of environments of one recipe."""

    method: ClassVar[str]
    renews: ClassVar[bool] = False
    """An explicit reset begins in new environments."""

    def __init__(self, recipe: Recipe, fresh: gym.Env) -> None:
        """`fresh` is a new environment, to be looked at only; Refused when the method cannot hold for its kind."""
        self.make = recipe.make
        self.id = recipe.id

    def attach(self, env: gym.Env) -> gym.Env:
        """`env`, watched if that is needed; to be stepped instead of it from now on."""
        return env

    @abc.abstractmethod
    def capture(self, env: gym.Env) -> dict[str, Any]:
        """The state of an attached environment, as `ludus.runs.tree` can store it."""

    @abc.abstractmethod
    def restore(self, state: dict[str, Any]) -> gym.Env:
        """A new, attached environment that goes on from `state`."""
