"""Probe environments with known answers and known faults; `register_probes()` makes them gym ids under `Probe/`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

VECTOR = spaces.Box(-np.inf, np.inf, (1,), np.float32)


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


class Probe(gym.Env):
    """Observes a constant 0, two actions; the subclasses say what happens."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space: gym.Space = VECTOR
    action_space: gym.Space = spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.t = 0
        self.episode = -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.episode = -1
        self.t, self.episode = 0, self.episode + 1
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        reward = self.pay(action)
        self.t += 1
        return self.observe(), reward, self.ended(), False, {}

    def render(self) -> Any:
        frame = np.zeros((4, 6, 3), np.uint8)
        frame[..., 0], frame[..., 1] = self.episode, self.t
        return frame

    def observe(self) -> Any:
        return vector(0)

    def pay(self, action: Any) -> Any:
        return 0.0

    def ended(self) -> bool:
        return False


class Constant(Probe):
    """One step, reward 1: V = 1."""

    def pay(self, action: Any) -> float:
        return 1.0

    def ended(self) -> bool:
        return True


class RewardByObservation(Probe):
    """One step, reward = observation (-1 or +1): V(o) = o."""

    shown = 1.0

    def observe(self) -> Any:
        self.shown = float(self.np_random.choice([-1.0, 1.0])) if self.t == 0 else self.shown
        return vector(self.shown)

    def pay(self, action: Any) -> float:
        return self.shown

    def ended(self) -> bool:
        return True


class Match(RewardByObservation):
    """One step, reward 1 for action 1 at observation +1 and action 0 at -1: the smallest policy to learn."""

    def pay(self, action: Any) -> float:
        return float((self.shown > 0) == (action == 1))


class TwoStepDelay(Probe):
    """Two steps, reward 1 at the end: V(0) = gamma, V(1) = 1."""

    def observe(self) -> Any:
        return vector(self.t)

    def pay(self, action: Any) -> float:
        return float(self.t == 1)

    def ended(self) -> bool:
        return self.t == 2


class Endless(Probe):
    """Reward 1 for ever, cut by the time limit only: V = 1 / (1 - gamma), if truncation bootstraps."""

    def pay(self, action: Any) -> float:
        return 1.0


class PreviousAnswer(Probe):
    """The answer to an episode's question is shown only at the end of the one before: chance (0.5) is the honest score.

    Observation (question, hint): (1, 0) asks, and pays 1 for the right action; (0, -1 or +1) shows the next answer.
    """

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    answer = 0
    upcoming = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.answer = self.upcoming
        obs, info = super().reset(seed=seed)
        if seed is not None:
            self.answer = int(self.np_random.integers(2))
        self.upcoming = int(self.np_random.integers(2))
        return obs, info

    def observe(self) -> Any:
        return vector(1, 0) if self.t == 0 else vector(0, 2 * self.upcoming - 1)

    def pay(self, action: Any) -> float:
        return float(self.t == 0 and action == self.answer)

    def ended(self) -> bool:
        return self.t == 2


class Counter(Probe):
    """Observes (episode, t); episodes of length 1 + (episode + offset) % 4 end as `end` says; pays 10 * episode + t."""

    observation_space = spaces.Box(0, np.inf, (2,), np.float32)

    def __init__(self, end: str = "terminated", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.end, self.offset = end, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(seed=seed)
        self.offset = self.offset if seed is None else seed % 4
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = 10.0 * self.episode + self.t
        self.t += 1
        over = self.t == 1 + (self.episode + self.offset) % 4
        ended, cut = over and self.end in ("terminated", "both"), over and self.end in ("truncated", "both")
        return self.observe(), reward, ended, cut, {}

    def observe(self) -> Any:
        return vector(self.episode, self.t)


class Echo(Probe):
    """Observes its last action and the one before, whose array it kept: nothing is lost, delayed or aliased."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-2, 2, (1,), np.float32)
    last = before = np.zeros(1, np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.before, self.last = self.last, action
        return super().step(action)  # type: ignore[return-value]

    def observe(self) -> Any:
        return vector(self.last[0], self.before[0])


def register_probes() -> None:
    """`Probe/<Name>-v0` for each; calling it twice is fine."""
    from envs import faulty_probes, space_probes

    modules = [vars(faulty_probes), vars(space_probes), globals()]
    probes = {name: cls for module in modules for name, cls in module.items() if _is_probe(cls)}
    for name, cls in probes.items():
        id = f"Probe/{name}-v0"
        if id not in gym.registry:
            gym.register(id, cls, max_episode_steps=20 if name == "Endless" else None)


def _is_probe(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Probe) and value is not Probe
