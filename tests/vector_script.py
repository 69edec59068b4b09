"""Vector environments that follow a plan, step by step: what the collector and the evaluator are held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ludus.envs.spaces import EnvInfo
from ludus.envs.vector import VectorEnv
from ludus.types import Acted, StepResult

BOX = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)


class Planned(VectorEnv):
    """Environment b plays the episodes of `plans[b]` over and over: (length, how it ends).

    It ends `terminated`, `truncated`, `both`, `life` (for the learner only) or `broken`. An observation is
    (environment, episode, step); the raw reward of a step is its number, the policy is paid a tenth of it and one more.
    """

    backend = "planned"

    def __init__(self, plans: Sequence[Sequence[tuple[int, str]]], action: gym.Space | None = None) -> None:
        super().__init__(EnvInfo("Planned-v0", BOX, action or gym.spaces.Discrete(2)), len(plans))
        self.plans = plans
        self.episode, self.t = np.zeros((2, self.num_envs), np.int64)
        self.seeds: list[list[int]] = []
        self.shown: list[np.ndarray] = []
        """Every observation that was given out, in order."""

    def _rows(self) -> np.ndarray:
        return np.stack([np.arange(self.num_envs), self.episode, self.t], 1).astype(np.float32)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        self.seeds.append(list(seeds))
        self.episode += bool(self.shown)
        self.t[:] = 0
        self.shown.append(self._rows())
        return self.shown[-1]

    def step(self, action: np.ndarray) -> StepResult:
        self.t += 1
        B = self.num_envs
        raw_reward = self.t.astype(np.float32)
        ends = [self.plans[b][self.episode[b] % len(self.plans[b])] for b in range(B)]
        how = np.array([kind if self.t[b] == length else "" for b, (length, kind) in enumerate(ends)])
        lost, final = how == "broken", self._rows()
        final[lost, 2] -= 1  # the last good observation
        raw_reward[lost] = 0.0
        broken = lost if lost.any() else None
        continues = how == "life" if (how == "life").any() else None
        terminated = np.isin(how, ("terminated", "both", "life"))
        truncated = np.isin(how, ("truncated", "both", "broken"))
        done = terminated | truncated
        self.episode[done] += 1
        self.t[done] = 0
        self.shown.append(self._rows())
        reward = np.where(lost, 0.0, raw_reward / 10 + 1).astype(np.float32)
        final_obs = final if done.any() else None
        return StepResult(self.shown[-1], reward, terminated, truncated, final_obs, raw_reward, broken, continues)

    def render(self, index: int = 0, *, final: bool = False) -> np.ndarray:
        return np.zeros((16, 16, 3), np.uint8)


class Counting:
    """A policy whose memory counts the steps of an episode; it notes everything it sees."""

    def __init__(self) -> None:
        self.seen: list[tuple[np.ndarray, Any, np.ndarray]] = []

    def initial_state(self, batch: int) -> Any:
        return (np.full((batch, 1), 100.0, np.float32),)

    def act(self, obs: np.ndarray, state: Any, first: np.ndarray) -> Any:
        self.seen.append((obs.copy(), state[0].copy(), first.copy()))
        action = np.zeros(len(obs), np.int64)
        return Acted(action, action, (np.where(first[:, None], 0.0, state[0]).astype(np.float32) + 1,), {})
