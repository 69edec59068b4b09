"""Probe environments that misbehave in one known way each."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from envs.probes import VECTOR, Counter, Probe, vector


class SameArray(Counter):
    """Returns one and the same array, changed in place."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.buffer = vector(0, 0)

    def observe(self) -> Any:
        self.buffer[:] = self.episode, self.t
        return self.buffer


class NonContiguous(Counter):
    """Returns every second entry of a larger array."""

    def observe(self) -> Any:
        return np.array([self.episode, -1, self.t, -1], np.float32)[::2]


class Faulty(Probe):
    """Does something bad at step `at` of the environment's life, `what` says what."""

    def __init__(self, what: str = "raise", at: int = 5, marker: str = "", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.what, self.at, self.marker, self.life = what, at, marker, 0
        self.observation_space = VECTOR

    def observe(self) -> Any:
        return vector(self.life)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.life += 1
        obs, reward, ended, cut, info = super().step(action)
        if self.what == "kill_if" and Path(self.marker).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "kill_if":
            return obs, reward, ended, cut, info
        if self.life != self.at or not self._first_time():
            return obs, reward, ended, cut, info
        if self.what == "raise":
            raise ValueError("the floor is\nlava")
        if self.what == "hang":
            time.sleep(600)
        if self.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "exit":
            os._exit(3)
        if self.what == "nan_obs":
            obs = vector(np.nan)
        if self.what == "nan_reward":
            reward = np.nan
        return obs, reward, ended, cut, info

    def _first_time(self) -> bool:
        """With a marker file the fault happens once in the life of the file, not of the environment."""
        if not self.marker:
            return True
        try:
            Path(self.marker).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class RaisesOnReset(Probe):
    """Has three lives, and two with seed 3; the reset after them raises."""

    lives = 3

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(seed=seed)
        self.lives = self.lives if seed is None else 2 if seed == 3 else 3
        if self.episode == self.lives:
            raise RuntimeError("no more lives")
        return obs, info

    def ended(self) -> bool:
        return True


class RaisesOnInit(Probe):
    """Cannot be made."""

    def __init__(self, render_mode: str | None = None) -> None:
        raise RuntimeError("no licence")


class BadObservation(Probe):
    """Does not keep the promise of its space."""

    def __init__(self, kind: str = "shape", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.kind = kind

    def observe(self) -> Any:
        bad: dict[str, Any] = {
            "shape": vector(0, 0, 0),
            "dtype": np.zeros(2),
            "outside": vector(0, 7),
            "none": None,
            "list": [0.0, 0.0],
            "nan": vector(0, np.nan),
        }
        return bad[self.kind]


class BadReward(Probe):
    """Pays in something that is not a number."""

    def __init__(self, kind: str = "object", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.kind = kind

    def pay(self, action: Any) -> Any:
        return {"object": object(), "none": None, "array": np.zeros(2), "string": "1", "nan": np.nan}[self.kind]


class HugeInfo(Counter):
    """Infos nobody could pickle, and nobody should keep."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, ended, cut, _ = super().step(action)
        return obs, reward, ended, cut, {"function": lambda: None, "huge": np.zeros(1_000_000)}


class IgnoresSeed(Probe):
    """Draws from numpy's global stream."""

    def observe(self) -> Any:
        return np.random.random(1).astype(np.float32)


class ForgetsState(Probe):
    """First observations follow the seed, what comes later does not."""

    lives = 0

    def observe(self) -> Any:
        self.lives += 1
        return vector(0 if self.t == 0 else self.lives)


class Slow(Probe):
    """Takes its time without the processor's."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(0.005)
        return super().step(action)


class Sleeper(Probe):
    """Sleeps in its tenth reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(seed=seed)
        if self.episode == 9:
            time.sleep(3)
        return obs, info

    def ended(self) -> bool:
        return True


class Changing(Probe):
    """Keeps the promise of its space for ten steps, then returns something of another `kind`."""

    def __init__(self, kind: str = "dtype", ends: bool = False, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.kind, self.ends = kind, ends
        self.observation_space = {
            "image": spaces.Box(0, 255, (2, 3, 4), np.uint8),
            "choice": spaces.Discrete(3),
        }.get(kind, spaces.Box(-1, 1, (2,), np.float32))

    def observe(self) -> Any:
        good: Any = {"image": np.zeros((2, 3, 4), np.uint8), "choice": 1}.get(self.kind, vector(0, 0))
        bad = {
            "shape": vector(0),
            "dtype": np.zeros(2),
            "list": [0.0, 0.0],
            "image": np.zeros((2, 3, 4), np.float32),
            "choice": 1.5,
        }
        return bad.get(self.kind, good) if self.t == 10 else good

    def pay(self, action: Any) -> Any:
        return {"string": "1.0", "array": np.zeros(2)}.get(self.kind, 1.0) if self.t == 9 else 1.0

    def ended(self) -> bool:
        return self.ends and self.t == 10


class Leaves(Probe):
    """Ends the program, or raises Ctrl-C, in its fifth step."""

    def __init__(self, kind: str = "exit", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.kind = kind

    def pay(self, action: Any) -> Any:
        if self.t == 4:
            raise SystemExit(0) if self.kind == "exit" else KeyboardInterrupt
        return 0.0


class Unclosable(Probe):
    """Raises when it is closed for the `at`-th time in this process."""

    closed = 0

    def __init__(self, at: int = 1, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.at = at

    def close(self) -> None:
        Unclosable.closed += 1
        if Unclosable.closed >= self.at:
            raise OSError("no")
