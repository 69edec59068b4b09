"""Environments that each end on a known rung of the ladder; workers import them from here."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from envs.probes import Probe, vector


class Walk(Probe):
    """A random walk of which the action is a part; ends at random."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.at = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        gym.Env.reset(self, seed=seed)
        self.t, self.at = 0, float(self.np_random.normal())
        return self.observe(), {}

    def pay(self, action: Any) -> float:
        self.at += float(self.np_random.normal()) + float(action)
        return self.at

    def observe(self) -> Any:
        return vector(self.at)

    def ended(self) -> bool:
        return bool(self.np_random.random() < 0.05)


class Token:
    """An object among others: no attribute of a new environment."""

    def __init__(self, weight: float) -> None:
        self.weight = weight


class Tokens(Walk):
    """Carries objects in a list: for pickle."""

    tokens: list[Token] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        answer = super().reset(seed=seed)
        self.tokens = [Token(float(self.np_random.normal())) for _ in range(3)]
        return answer

    def pay(self, action: Any) -> float:
        token = self.tokens[int(self.np_random.integers(3))]
        token.weight += 0.5
        return super().pay(action) + token.weight


class Turns(Walk):
    """Whose turn it is, is a second reference to one of two objects."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.white, self.black = Token(1.0), Token(2.0)
        self.turn = self.white

    def pay(self, action: Any) -> float:
        self.turn.weight += 1
        self.turn = self.black if self.np_random.random() < 0.5 else self.white
        return super().pay(action) + self.turn.weight


class Views(Walk):
    """Keeps an array and a view of it."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.all = np.zeros(4)
        self.first = self.all[:1]

    def pay(self, action: Any) -> float:
        self.all += 1
        return super().pay(action) + float(self.first[0])


class Locked(Walk):
    """Cannot be read or copied, but is a function of its generator and the actions."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.lock = threading.Lock()


class Carrying(Locked):
    """Something goes over from episode to episode that no seed resets; new ones are alike."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.episodes = itertools.count()
        self.number = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.number = next(self.episodes)
        return super().reset(seed=seed)

    def pay(self, action: Any) -> float:
        return super().pay(action) + self.number


class CarryingVector(gym.vector.SyncVectorEnv):
    """The same as a vector entry point."""

    def __init__(self, num_envs: int, autoreset_mode: gym.vector.AutoresetMode, **_: Any) -> None:
        make = functools.partial(gym.make, "Rung/Carrying-v0", disable_env_checker=True)
        super().__init__([make] * num_envs, autoreset_mode=autoreset_mode)


class Wild(Locked):
    """Follows from nothing."""

    def pay(self, action: Any) -> float:
        return super().pay(action) + time.perf_counter_ns() % 1000


class Offers(Locked):
    """Saves itself."""

    def snapshot_state(self) -> dict[str, Any]:
        return {"at": self.at, "t": self.t, "extra": (1, [2.5, None], {3: "x"}, np.arange(3))}

    def restore_state(self, state: dict[str, Any]) -> None:
        assert state["extra"][:3] == (1, [2.5, None], {3: "x"}) and state["extra"][3].tolist() == [0, 1, 2]
        self.at, self.t = state["at"], state["t"]


class OffersTooLittle(Offers):
    """Forgets where it is."""

    def snapshot_state(self) -> dict[str, Any]:
        return {**super().snapshot_state(), "at": 0.0}


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return Path.touch, (self.canary,)


PROBES = (Walk, Tokens, Turns, Views, Locked, Carrying, Wild, Offers, OffersTooLittle)


def register() -> None:
    """`Rung/<Name>-v0`; calling it twice is fine."""
    for cls in PROBES:
        if f"Rung/{cls.__name__}-v0" not in gym.registry:
            gym.register(f"Rung/{cls.__name__}-v0", cls, max_episode_steps=50)
    if "Rung/CarryingVector-v0" not in gym.registry:
        gym.register("Rung/CarryingVector-v0", Carrying, max_episode_steps=50, vector_entry_point=CarryingVector)
