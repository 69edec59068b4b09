"""A picture and a vector that only tell together what to do: the smallest task for Dict observations."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from ludus.envs.spaces import Image
from ludus.envs.vector.tasks import VectorTask, register_task
from ludus.types import Array

SIDE = 6
"""Height and width of the picture."""
BRIGHT, DARK, NOISE = 200, 50, 40
THRESHOLD = 0.9
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
        super().__init__(num, observation, action, THRESHOLD * length)
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


register_task("LookAndFeel-v0", LookAndFeel)
register_task("LookAndFeel/Continuous-v0", LookAndFeel, kwargs={"continuous": True})
