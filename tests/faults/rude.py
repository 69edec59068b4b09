"""Environments that do to their process what no environment should, loaded by `--plugin`."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

LONG = 600.0


class Rude(gym.Env):
    """Does `what` once it has lived for `at` steps, or when it is made, reset or closed; `marker`: once and for all."""

    def __init__(self, what: str = "", at: int = 400, marker: str = "") -> None:
        self.what, self.at, self.marker, self.life = what, at, marker, 0
        self.observation_space, self.action_space = Box(-1, 1, (3,), np.float32), Discrete(2)
        self._at_birth()

    def _at_birth(self) -> None:
        if self.what == "exit when made":
            sys.exit(0)
        if self.what == "hang when made":
            time.sleep(LONG)
        if self.what == "hang in a library":
            hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
        if self.what == "thread":
            threading.Thread(target=time.sleep, args=(LONG,)).start()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if self.what == "hang when reset":
            time.sleep(LONG)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.life += 1
        obs: Any = np.zeros(3, np.float32)
        reward: Any = 1.0
        if self.life >= self.at:
            self._once()
            obs = {"float64": obs.astype(np.float64), "outside": obs + 100}.get(self.what, obs)
            reward = "1.0" if self.what == "string" else reward
        return obs, reward, self.life % 10 == 0, False, {}

    def _once(self) -> None:
        if self.life != self.at or (self.marker and Path(self.marker).exists()):
            return
        if self.what == "exit":
            sys.exit(0)
        if self.what == "child":
            multiprocessing.get_context("fork").Process(target=time.sleep, args=(LONG,)).start()
        if self.what == "remove directory":
            os.chdir(place := tempfile.mkdtemp())
            Path(place).rmdir()
        if self.what == "interrupt":
            raise KeyboardInterrupt
        if self.what == "chdir":
            os.chdir("/")
        if self.what == "fork" and os.fork() == 0:
            Path(self.marker).write_text(str(os.getpid()))
            time.sleep(LONG)
            os._exit(0)

    def close(self) -> None:
        if self.what == "hang when closed" or (self.what == "hang at last" and self.life >= self.at):
            time.sleep(LONG)
        if self.what == "raise when closed":
            raise OSError("no")


if "Faulty/Rude-v0" not in gym.registry:
    gym.register("Faulty/Rude-v0", Rude, max_episode_steps=100)
