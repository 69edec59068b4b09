"""Multi-armed bandits: the smallest problem in which exploring pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete

BEST_SHARE = 0.95
"""Share of best-arm pulls that counts as solved."""
MEANS = (0.3, 0.7, 0.1, 0.9, 0.5, 0.2, 1.0, 0.4, 0.8, 0.6)


class Bandit(gym.Env):
    """Pull one of several arms, get its noisy reward; nothing to observe, nothing to remember.

    A single pull is an episode of its own and terminates; with `steps` > 1 an endless game is cut (truncated) there.
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
        """`means` are the arms' means; without them `seed` draws `arms` of them in [0, 1], else they are fixed."""
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

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._pulls = 0
        return 0, {"best_arm": self.best_arm}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        mean = float(self.means[action])
        if self._kind == "bernoulli":
            reward = float(self.np_random.random() < mean)
        else:
            reward = mean + self._std * float(self.np_random.standard_normal())
        self._pulls += 1
        info = {"best_arm": self.best_arm, "regret": float(self.means[self.best_arm]) - mean}
        ended = self._pulls >= self._steps
        return 0, reward, ended and self._steps == 1, ended and self._steps > 1, info


def _means(arms: int | None, means: Sequence[float] | None, seed: int | None) -> np.ndarray:
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


_ENTRY = "ludus.envs.suites.bandit:Bandit"
_VARIANTS: dict[str, dict[str, Any]] = {
    "Bandit-v0": {},
    "Bandit/Bernoulli-v0": {"kind": "bernoulli"},
    "Bandit/TwoArms-v0": {"means": (0.2, 0.8)},
    "Bandit/OnePull-v0": {"steps": 1},
}
for _id, _kwargs in _VARIANTS.items():
    if _id not in gym.registry:
        gym.register(_id, _ENTRY, kwargs=_kwargs)
