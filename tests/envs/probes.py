"""Probe environments with known answers and known faults; `register_probes()` makes them gym ids under `Probe/`."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
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


class ConstantReward(Probe):
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
    """Observes the last action it got: nothing is lost, delayed or aliased on the way."""

    action_space = spaces.Box(-2, 2, (1,), np.float32)
    last = 0.0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.last = float(action[0])
        action[0] = 99.0  # an environment may spoil what it was given
        return super().step(action)  # type: ignore[return-value]

    def observe(self) -> Any:
        return vector(self.last)


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


OBSERVATIONS: dict[str, Any] = {
    "box": lambda: spaces.Box(-1, 1, (3,), np.float32),
    "box64": lambda: spaces.Box(-1, 1, (3,), np.float64),
    "box_2d": lambda: spaces.Box(-1, 1, (2, 3), np.float32),
    "box_ints": lambda: spaces.Box(0, 9, (2,), np.int32),
    "scalar": lambda: spaces.Box(-1, 1, (), np.float32),
    "unbounded": lambda: spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "image_hwc": lambda: spaces.Box(0, 255, (12, 10, 3), np.uint8),
    "image_chw": lambda: spaces.Box(0, 255, (4, 12, 10), np.uint8),
    "image_grey": lambda: spaces.Box(0, 255, (12, 10), np.uint8),
    "discrete": lambda: spaces.Discrete(5),
    "discrete_start": lambda: spaces.Discrete(5, start=3),
    "multi_discrete": lambda: spaces.MultiDiscrete([3, 4]),
    "multi_discrete_start": lambda: spaces.MultiDiscrete([3, 4], start=[1, -2]),
    "multi_discrete_2d": lambda: spaces.MultiDiscrete([[3, 4], [5, 6]]),
    "multi_binary": lambda: spaces.MultiBinary(4),
    "multi_binary_2d": lambda: spaces.MultiBinary((2, 3)),
    "dict": lambda: spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float64), "b": spaces.Discrete(3)}),
    "dict_nested": lambda: spaces.Dict(
        {"a": spaces.Dict({"b": spaces.MultiBinary(2)}), "c": spaces.Tuple((spaces.MultiDiscrete([2, 3]),))}
    ),
    "tuple": lambda: spaces.Tuple((spaces.Discrete(32), spaces.Discrete(11), spaces.Discrete(2))),
}
REFUSED_OBSERVATIONS: dict[str, Any] = {
    "text": lambda: spaces.Text(5),
    "sequence": lambda: spaces.Sequence(spaces.Discrete(3)),
    "graph": lambda: spaces.Graph(spaces.Box(0, 1, (2,)), None),
    "dict_with_text": lambda: spaces.Dict({"a": spaces.Discrete(2), "mission": spaces.Text(5)}),
    "dict_with_image": lambda: spaces.Dict({"a": spaces.Discrete(2), "image": spaces.Box(0, 255, (8, 8, 3), np.uint8)}),
    "tuple_with_sequence": lambda: spaces.Tuple((spaces.Sequence(spaces.Discrete(3)),)),
}
ACTIONS: dict[str, Any] = {
    "discrete": lambda: spaces.Discrete(4),
    "discrete_start": lambda: spaces.Discrete(4, start=-1),
    "multi_discrete": lambda: spaces.MultiDiscrete([2, 3]),
    "multi_discrete_start": lambda: spaces.MultiDiscrete([2, 3], start=[5, -1]),
    "multi_discrete_2d": lambda: spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "multi_binary": lambda: spaces.MultiBinary(3),
    "multi_binary_2d": lambda: spaces.MultiBinary((2, 2)),
    "box": lambda: spaces.Box(-2, 2, (2,), np.float32),
    "box64": lambda: spaces.Box(-2, 2, (2,), np.float64),
    "box_2d": lambda: spaces.Box(-2, 2, (2, 3), np.float32),
    "box_scalar": lambda: spaces.Box(-2, 2, (), np.float32),
    "asymmetric": lambda: spaces.Box(np.array([-1, 0], np.float32), np.array([1, 5], np.float32)),
    "half_bounded": lambda: spaces.Box(np.array([-np.inf, 0], np.float32), np.array([1, np.inf], np.float32)),
    "unbounded": lambda: spaces.Box(-np.inf, np.inf, (2,), np.float32),
}
REFUSED_ACTIONS: dict[str, Any] = {
    "dict": lambda: spaces.Dict({"a": spaces.Discrete(2)}),
    "tuple": lambda: spaces.Tuple((spaces.Discrete(2),)),
    "box_ints": lambda: spaces.Box(0, 255, (2,), np.uint8),
    "text": lambda: spaces.Text(5),
}


class Spaces(Probe):
    """Observes random samples of any space; pays 1 for an action inside its space, -1 for one outside."""

    def __init__(self, observation: str = "box", action: str = "discrete", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.observation_space = (OBSERVATIONS | REFUSED_OBSERVATIONS)[observation]()
        self.action_space = (ACTIONS | REFUSED_ACTIONS)[action]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.observation_space.seed(seed)
        return super().reset(seed=seed)

    def observe(self) -> Any:
        return self.observation_space.sample()

    def pay(self, action: Any) -> float:
        return 1.0 if self.action_space.contains(action) else -1.0

    def ended(self) -> bool:
        return self.t == 5


PROBES: dict[str, type[Probe]] = {
    "Constant": ConstantReward,
    "RewardByObservation": RewardByObservation,
    "Match": Match,
    "TwoStepDelay": TwoStepDelay,
    "Endless": Endless,
    "PreviousAnswer": PreviousAnswer,
    "Counter": Counter,
    "Echo": Echo,
    "SameArray": SameArray,
    "NonContiguous": NonContiguous,
    "Faulty": Faulty,
    "RaisesOnReset": RaisesOnReset,
    "RaisesOnInit": RaisesOnInit,
    "BadObservation": BadObservation,
    "BadReward": BadReward,
    "HugeInfo": HugeInfo,
    "IgnoresSeed": IgnoresSeed,
    "ForgetsState": ForgetsState,
    "Slow": Slow,
    "Spaces": Spaces,
}


def register_probes() -> None:
    """`Probe/<Name>-v0` for each; calling it twice is fine."""
    for name, cls in PROBES.items():
        id = f"Probe/{name}-v0"
        if id not in gym.registry:
            gym.register(id, cls, max_episode_steps=20 if name == "Endless" else None)
