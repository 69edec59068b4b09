"""Small problems with one lesson each.

Bandit: exploring pays. TMaze (Bakker, 2001) and ProofOfMemory: memory pays, for what to do is shown first and needed
later. LookAndFeel: a picture and a vector only tell together what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from ludus.envs import Action, Options, ResetReturn, StepReturn
from ludus.envs.suites import register
from ludus.envs.vector.tasks import VectorTask, register_task
from ludus.spaces import Image
from ludus.types import Array

SOLVED = 0.95
"""Share of best-arm pulls, or of the best return of a memory task, that counts as solved."""
OPTIMAL, MEMORYLESS = 1.0, 0.0
"""Best mean returns of the memory tasks with and without memory (for a length of at least 1)."""
MEANS = (0.3, 0.7, 0.1, 0.9, 0.5, 0.2, 1.0, 0.4, 0.8, 0.6)


class Bandit(gym.Env):
    """Pull one of several arms, get its noisy reward; there is nothing to observe or to remember.

    With `steps: 1` every pull is an episode and terminates; with more, the game is truncated after `steps` pulls.
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
        arms: int | None = None,
        kind: Literal["gaussian", "bernoulli"] = "gaussian",
        means: Sequence[float] | None = None,
        std: float = 0.1,
        seed: int | None = None,
        steps: int = 100,
        render_mode: str | None = None,
    ) -> None:
        """`means` of the arms; without them `seed` draws `arms` means in [0, 1], and without both they are fixed."""
        self.means = _means(arms, means, seed)
        if kind not in ("gaussian", "bernoulli"):
            raise ValueError(f"kind must be gaussian or bernoulli, got {kind!r}")
        if kind == "bernoulli" and not ((self.means >= 0) & (self.means <= 1)).all():
            raise ValueError("means of Bernoulli arms are probabilities")
        if steps < 1 or std < 0:
            raise ValueError("steps must be at least 1 and std at least 0")
        self.render_mode, self._kind, self._std, self._steps = render_mode, kind, std, steps
        self.best_arm = int(self.means.argmax())
        others = np.delete(self.means, self.best_arm).mean()
        self.reward_threshold = float(steps * (SOLVED * self.means.max() + (1 - SOLVED) * others))
        self.observation_space, self.action_space = Discrete(1), Discrete(len(self.means))
        self._pulls = 0

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin a game; the observation is always 0."""
        super().reset(seed=seed)
        self._pulls = 0
        return 0, {"best_arm": self.best_arm}

    def step(self, action: Action) -> StepReturn:
        """Pull an arm."""
        mean = float(self.means[action])
        if self._kind == "bernoulli":
            reward = float(self.np_random.random() < mean)
        else:
            reward = mean + self._std * float(self.np_random.standard_normal())
        self._pulls += 1
        info = {"best_arm": self.best_arm, "regret": float(self.means[self.best_arm]) - mean}
        ended = self._pulls >= self._steps
        return 0, reward, ended and self._steps == 1, ended and self._steps > 1, info


def _means(arms: int | None, means: Sequence[float] | None, seed: int | None) -> Array:
    if means is not None:
        if arms not in (None, len(means)) or len(means) < 2:
            raise ValueError(f"arms={arms} does not fit {len(means)} means; a bandit has at least two")
        return np.array(means, dtype=float)
    count = len(MEANS) if arms is None else arms
    if count < 2:
        raise ValueError(f"a bandit has at least two arms, got {count}")
    if seed is not None:
        return np.random.default_rng(seed).random(count)
    return np.resize(MEANS, count) if count <= len(MEANS) else np.linspace(0, 1, count)


FORWARD, UP, DOWN = range(3)
CORRIDOR, JUNCTION = 2, 3
"""Entries of an observation; the first two are the sign."""
LENGTHS = 5
"""Time limit of the T-maze in lengths of the corridor; a random walk needs three."""
_VIEWS = np.eye(4, dtype=np.float32)


class TMaze(VectorTask):
    """Walking on is free, bumping into a wall costs 1/length; the right turn pays 1, the wrong one -1.

    The turn comes `length` steps after the sign was last seen: without memory it is a coin toss.
    """

    state = ("_place", "_sign", "_age")

    def __init__(self, num: int, length: int = 40) -> None:
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        super().__init__(num, Box(0.0, 1.0, (4,), np.float32), Discrete(3), SOLVED)
        self._length, self._limit, self._bump = length, LENGTHS * length + 10, np.float32(-1 / length)
        self._place, self._sign, self._age = np.zeros((3, num), np.int64)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Draw the sign of a row."""
        self._place[i] = self._age[i] = 0
        self._sign[i] = sign = rng.integers(2)
        self.obs[i] = _VIEWS[sign]

    def step(self, action: Array) -> None:
        """Walk or turn."""
        place, length = self._place, self._length
        on, there = action == FORWARD, place == length
        np.greater(there, on, self.terminated)  # a turn at the junction
        moved = on > there
        self.reward[...] = np.where(moved, np.float32(0), self._bump)
        if self.terminated.any():
            right = action - UP == self._sign
            self.reward[self.terminated] = np.where(right, 1, -1)[self.terminated]
        place += moved
        self._age += 1
        np.greater_equal(self._age, self._limit, self.truncated)
        self.truncated &= ~self.terminated
        view = np.where(place == 0, self._sign, np.where(place == length, JUNCTION, CORRIDOR))
        np.take(_VIEWS, view, axis=0, out=self.obs)


LEFT, RIGHT = range(2)
SHOWN = 2
"""Observations with the goals."""
WALK = 5
"""Steps from the middle to either end."""
SPREAD = 2
"""Episodes begin up to this many steps away from the middle."""
PATIENCE = 2 * WALK
"""Moves before dithering costs something."""
DITHERING = np.float32(-0.1)


class ProofOfMemory(VectorTask):
    """The good end of a line pays 1, the bad one -1; seen are the goals, hidden (0) after two steps, and the place.

    After PocMemoryEnv of Pleines' recurrent PPO, which CleanRL and RLBenchNet call PoMEnv. There the agent cannot move
    while the goals are shown; here it cannot move for another `length` steps: memory is needed over any distance.
    """

    state = ("_place", "_good", "_age")

    def __init__(self, num: int, length: int = 40) -> None:
        if length < 0:
            raise ValueError(f"length must be at least 0, got {length}")
        super().__init__(num, Box(-1.0, 1.0, (3,), np.float32), Discrete(2), SOLVED)
        self._frozen = SHOWN - 1 + length
        self._place, self._good, self._age = np.zeros((3, num), np.int64)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Draw the good end and the place of a row."""
        self._good[i] = good = 2 * rng.integers(2) - 1
        self._place[i] = place = rng.integers(-SPREAD, SPREAD + 1)
        self._age[i] = 0
        self.obs[i] = -good, place / WALK, good

    def step(self, action: Array) -> None:
        """Move every agent that may move."""
        place, age = self._place, self._age
        place += (2 * action - 1) * (age >= self._frozen)
        age += 1
        np.equal(np.abs(place), WALK, self.terminated)
        moves = age - self._frozen
        self.reward[...] = np.where(moves > PATIENCE, DITHERING, np.float32(0))
        if self.terminated.any():
            self.reward[self.terminated] = np.sign(place * self._good)[self.terminated]
        np.greater_equal(moves, 2 * PATIENCE, self.truncated)
        self.truncated &= ~self.terminated
        goal = self._good * (age < SHOWN)
        self.obs[:, 0], self.obs[:, 1], self.obs[:, 2] = -goal, place / WALK, goal


SIDE = 6  # height and width of the picture
BRIGHT, DARK, NOISE = 200, 50, 40
RIGHT_SHARE = 0.9
"""Share of right answers that counts as solved; a policy that uses one part alone gets half of them."""


class LookAndFeel(VectorTask):
    """Answer whether the bright half of the picture `camera` and the sign of the vector `touch` agree.

    Bright on the right and a positive sum agree, bright on the left and a negative one too. A right answer pays 1, a
    wrong one nothing; every step asks a new question, and an episode of `length` questions terminates.
    """

    state = ("_right", "_positive", "_pixels", "_touch", "_age")

    def __init__(self, num: int, length: int = 1, continuous: bool = False) -> None:
        """`length`: questions of an episode; `continuous`: the answer is the sign of a number."""
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        observation = Dict({"camera": Image(0, 255, (1, SIDE, SIDE), np.uint8), "touch": Box(-1, 1, (4,), np.float32)})
        action = Box(-1, 1, (1,), np.float32) if continuous else Discrete(2)
        super().__init__(num, observation, action, RIGHT_SHARE * length)
        self._length, self._continuous = length, continuous
        self._right, self._positive = np.zeros((2, num, length), bool)
        self._pixels = np.zeros((num, length, SIDE, SIDE), np.uint8)
        self._touch = np.zeros((num, length, 4), np.float32)
        self._age = np.zeros(num, np.int64)

    def begin(self, i: int, rng: np.random.Generator) -> None:
        """Draw all questions of a row."""
        length = self._length
        self._right[i], self._positive[i] = rng.integers(2, size=(2, length))
        right = np.arange(SIDE) >= SIDE // 2
        bright = right == self._right[i][:, None]
        self._pixels[i] = np.where(bright, BRIGHT, DARK)[:, None] + rng.integers(-NOISE, NOISE, (length, SIDE, SIDE))
        touch = rng.uniform(0.2, 1.0, (length, 4)).astype(np.float32)
        self._touch[i] = np.where(self._positive[i][:, None], touch, -touch)
        self._age[i] = 0
        self.obs["camera"][i, 0], self.obs["touch"][i] = self._pixels[i, 0], self._touch[i, 0]

    def step(self, action: Array) -> None:
        """Pay for the answer and ask the next question."""
        rows, age = np.arange(self.num), self._age
        answer = action[:, 0] > 0 if self._continuous else action == 1
        np.equal(answer, self._right[rows, age] == self._positive[rows, age], out=self.reward, casting="unsafe")
        age += 1
        np.greater_equal(age, self._length, self.terminated)
        question = np.minimum(age, self._length - 1)
        self.obs["camera"][:, 0], self.obs["touch"][...] = self._pixels[rows, question], self._touch[rows, question]


for _id, _kwargs in {
    "Bandit-v0": {},
    "Bandit/Bernoulli-v0": {"kind": "bernoulli"},
    "Bandit/TwoArms-v0": {"means": (0.2, 0.8)},
    "Bandit/OnePull-v0": {"steps": 1},
}.items():
    register(_id, f"{__name__}:Bandit", kwargs=_kwargs)
for _id, _length in {"TMaze-v0": 40, "TMaze/Short-v0": 10, "TMaze/Long-v0": 160}.items():
    register_task(_id, TMaze, kwargs={"length": _length})
for _id, _length in {"ProofOfMemory-v0": 40, "PocMemoryEnv-v0": 0, "PoMEnv-v0": 0}.items():
    register_task(_id, ProofOfMemory, kwargs={"length": _length})
register_task("LookAndFeel-v0", LookAndFeel)
register_task("LookAndFeel/Continuous-v0", LookAndFeel, kwargs={"continuous": True})
