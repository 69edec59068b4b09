"""The method `pickle`: the environment object itself, for the user and the machine that wrote it.

Loading a pickle runs code. So it is sealed with the user's key (HMAC-SHA256), and nothing is loaded before the seal has
been checked. This is the only file that ever unpickles what was stored.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pickle
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np

from ludus import files
from ludus.envs.snapshots import Keeper, Refused
from ludus.envs.snapshots.attributes import layers
from ludus.errors import DataError
from ludus.types import State

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe

VARIABLE = "LUDUS_KEY_FILE"
KEY_BYTES = 32
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
    secret = load_key()
    return {"pickle": np.frombuffer(payload, np.uint8), "mac": _mac(secret, payload, purpose), "key": _print(secret)}


def unseal(sealed: State, purpose: str) -> bytes:
    """The payload; DataError unless this user sealed exactly these bytes for this purpose."""
    where = f"snapshot of {purpose}"
    secret = load_key()
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


def load_key() -> bytes:
    """The key, made on first use; DataError if other users can read it."""
    path = key_file()
    try:
        return _read_key(path)
    except FileNotFoundError:
        _create_key(path)
        return _read_key(path)


def key_file() -> Path:
    """`$LUDUS_KEY_FILE`, else a file in the user's state directory."""
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise DataError(VARIABLE, "this user has no home directory for a key", f"set {VARIABLE}") from error
    return Path(state) / "ludus" / "snapshot.key"


def _read_key(path: Path) -> bytes:
    try:
        file = files.open_regular(path, follow=False)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DataError(str(path), f"the key cannot be read: {error.strerror}", f"set {VARIABLE}") from error
    with file:
        facts = os.fstat(file.fileno())
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            raise DataError(str(path), "is not a key file of this user alone", "chmod 600, or remove it for a new one")
        key = file.read(KEY_BYTES + 1)
    if len(key) != KEY_BYTES:
        raise DataError(str(path), f"holds no key of {KEY_BYTES} bytes", "remove it for a new one")
    return key


def _create_key(path: Path) -> None:
    """Create the file in one step: several workers may do it at the same time."""
    temporary = files.beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_new(temporary, secrets.token_bytes(KEY_BYTES))
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        finally:
            temporary.unlink()
    except OSError as error:
        raise DataError(str(path), f"no key can be written: {error.strerror}", f"set {VARIABLE}") from error
