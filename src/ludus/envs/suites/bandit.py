"""Multi-armed bandits: the smallest problem in which exploring pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete

from ludus.envs import Action, Options, ResetReturn, StepReturn
from ludus.envs.suites import register
from ludus.types import Array

BEST_SHARE = 0.95
"""Share of best-arm pulls that counts as solved."""
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
        self.reward_threshold = float(steps * (BEST_SHARE * self.means.max() + (1 - BEST_SHARE) * others))
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


_VARIANTS: dict[str, dict[str, object]] = {
    "Bandit-v0": {},
    "Bandit/Bernoulli-v0": {"kind": "bernoulli"},
    "Bandit/TwoArms-v0": {"means": (0.2, 0.8)},
    "Bandit/OnePull-v0": {"steps": 1},
}
for _id, _kwargs in _VARIANTS.items():
    register(_id, f"{__name__}:Bandit", kwargs=_kwargs)
