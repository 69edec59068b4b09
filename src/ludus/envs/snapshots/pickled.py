"""The method `pickle`: the environment object itself, for the user and the machine that wrote it.

Loading a pickle runs code. So it is sealed with the user's key (HMAC-SHA256), and nothing is loaded before the seal has
been checked. This is the only file that ever unpickles what was stored.
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np

from ludus.envs.snapshots import Keeper, Refused, key
from ludus.envs.snapshots.attributes import layers
from ludus.errors import DataError
from ludus.types import State

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe

PURPOSE = b"ludus environment snapshot 1\0"


class Pickled(Keeper):
    """Environments made of Python objects, for example MiniGrid."""

    method = "pickle"

    def __init__(self, recipe: Recipe, fresh: gym.Env) -> None:
        super().__init__(recipe, fresh)
        for layer in layers(fresh):
            if isinstance(layer, gym.utils.EzPickle):
                raise Refused(f"{type(layer).__name__} pickles the arguments it was made with, not its state")

    def capture(self, env: gym.Env) -> State:
        import cloudpickle

        return seal(cloudpickle.dumps(env), self.id)

    def restore(self, state: State) -> gym.Env:
        payload = unseal(state, self.id)
        try:
            env = pickle.loads(payload)
        except Exception as error:  # whatever its classes raise is named
            problem = f"its environment cannot be loaded: {type(error).__name__}: {str(error)[:200]}"
            raise DataError(f"snapshot of {self.id}", problem, "resume with the code that saved it") from error
        assert isinstance(env, gym.Env)
        return env


def seal(payload: bytes, purpose: str) -> State:
    """`payload` with its authentication code."""
    secret = key.load()
    return {"pickle": np.frombuffer(payload, np.uint8), "mac": _mac(secret, payload, purpose), "key": _print(secret)}


def unseal(sealed: State, purpose: str) -> bytes:
    """The payload; DataError unless this user sealed exactly these bytes for this purpose."""
    where = f"snapshot of {purpose}"
    secret = key.load()
    if sealed.get("key") != _print(secret):
        remedy = "resume where it was saved; pickled environments are not portable"
        raise DataError(where, "its pickled environment was sealed by another user or machine", remedy)
    try:
        payload = np.asarray(sealed["pickle"], np.uint8).tobytes()
        good = hmac.compare_digest(_mac(secret, payload, purpose).encode(), str(sealed["mac"]).encode())
    except (KeyError, TypeError, ValueError):
        good = False
    if not good:
        raise DataError(where, "its pickled environment does not match its seal", "resume an older checkpoint")
    return payload


def _mac(secret: bytes, payload: bytes, purpose: str) -> str:
    return hmac.new(secret, PURPOSE + purpose.encode() + b"\0" + payload, hashlib.sha256).hexdigest()


def _print(secret: bytes) -> str:
    """A name of the key that does not reveal it."""
    return hashlib.sha256(b"ludus key print\0" + secret).hexdigest()[:16]
