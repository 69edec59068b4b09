"""Environments that follow a script, and a log of everything they did: what buffers are held against.

An observation says which environment, episode and step it belongs to, so that any sample can be looked up in the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from ludus.data.rollout import Ends, Rollout
from ludus.registry import BUFFERS
from ludus.types import Spaces


@dataclass
class Episode:
    """What happened in one episode of one environment."""

    rewards: list[float] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    ended: str = ""
    """`terminated` or `truncated`; empty while it goes on."""
    begin: int = 0
    """First step that was added to the buffer."""
    added: list[bool] = field(default_factory=list)
    memory: dict[int, float] = field(default_factory=dict)
    """Memory before a step, where it was stored."""


class Script:
    """B environments that end their episodes at random; `rollout` collects like the collector does."""

    def __init__(self, envs: int, seed: int, *, frames: int = 1, padding: str = "repeat", dtype: Any = np.uint8,
                 ends: float = 0.2) -> None:  # fmt: skip
        self.envs, self.frames, self.padding, self.dtype, self.ends = envs, frames, padding, dtype, ends
        self.rng = np.random.default_rng(seed)
        self.log: list[list[Episode]] = [[Episode()] for _ in range(envs)]
        self.steps = 0
        self.first = np.ones(envs, bool)
        box = gym.spaces.Box(0, 255, (frames, 4), dtype)
        self.spaces = Spaces(box, gym.spaces.Discrete(7))

    def frame(self, b: int, episode: int, t: int) -> np.ndarray:
        """One frame: never all zeros."""
        return np.array([b, episode, t, 1 + t % 7], self.dtype)

    def obs(self, b: int, episode: int, t: int) -> np.ndarray:
        """The stack an environment would show."""
        stack = []
        for back in reversed(range(self.frames)):
            if t >= back or self.padding == "repeat":
                stack.append(self.frame(b, episode, max(t - back, 0)))
            else:
                stack.append(np.zeros(4, self.dtype))
        return np.stack(stack)

    def now(self, b: int) -> np.ndarray:
        """What the policy sees next."""
        return self.obs(b, len(self.log[b]) - 1, len(self.log[b][-1].rewards))

    def rollout(self, steps: int, *, added: bool = True) -> Rollout:
        """`steps` steps of every environment."""
        B = self.envs
        obs = np.zeros((steps + 1, B, self.frames, 4), self.dtype)
        action, reward = np.zeros((steps, B), np.int64), np.zeros((steps, B), np.float32)
        terminated, truncated = np.zeros((2, steps, B), bool)
        first = np.zeros((steps + 1, B), bool)
        obs[0], first[0] = [self.now(b) for b in range(B)], self.first
        ends: list[tuple[int, int, np.ndarray]] = []
        memory = np.array([[100 * b + len(self.log[b][-1].rewards)] for b in range(B)], np.float32)
        for b in range(B):
            if added:
                self.log[b][-1].memory[len(self.log[b][-1].rewards)] = float(memory[b, 0])
        for t in range(steps):
            for b in range(B):
                episode = self.log[b][-1]
                action[t, b], reward[t, b] = self.rng.integers(7), self.rng.integers(-5, 6)
                episode.actions.append(int(action[t, b]))
                episode.rewards.append(float(reward[t, b]))
                episode.added.append(added)
                kind = self.rng.choice(["", "terminated", "truncated"], p=[1 - self.ends, self.ends / 2, self.ends / 2])
                if kind:
                    terminated[t, b], truncated[t, b] = kind == "terminated", kind == "truncated"
                    ends.append((t, b, self.now(b)))
                    episode.ended = kind
                    self.log[b].append(Episode())
                first[t + 1, b] = bool(kind)
                obs[t + 1, b] = self.now(b)
        self.first = first[-1]
        t, b = (np.array([end[i] for end in ends], np.int64) for i in (0, 1))
        final = np.array([o for *_, o in ends], self.dtype).reshape(-1, self.frames, 4)
        found = Ends(t=t, b=b, obs=final, raw_obs=final, state=(memory[b],), bootstrap=truncated[t, b])
        self.steps += steps
        return Rollout(obs=obs, action=action, reward=reward, terminated=terminated, truncated=truncated, first=first,
                       state=(memory,), last_state=(memory,), ends=found if ends else None, raw_obs=obs,
                       raw_reward=reward, start=self.steps - steps)  # fmt: skip

    def barrier(self) -> None:
        """All environments are reset, as at a checkpoint of environments that cannot be saved."""
        for b in range(self.envs):
            if self.log[b][-1].rewards:
                self.log[b][-1].ended = "truncated"
                self.log[b].append(Episode())
        self.first = np.ones(self.envs, bool)

    def where(self, obs: np.ndarray) -> tuple[int, int, int]:
        """(environment, episode, step) an observation belongs to."""
        return int(obs[-1, 0]), int(obs[-1, 1]), int(obs[-1, 2])

    def stretch(self, b: int, episode: int, t: int, most: int) -> list[float]:
        """Rewards from a step on: not past the episode's end, nor past what was added, nor past the newest step."""
        found = self.log[b][episode]
        rewards: list[float] = []
        for k in range(t, min(t + most, len(found.rewards))):
            if not found.added[k]:
                break
            rewards.append(found.rewards[k])
        return rewards


def make(kind: str, script: Script, size: int, *, seed: int = 0, memory: bool = True, **settings: Any) -> Any:
    """A buffer for a script."""
    cls = BUFFERS[kind]
    cfg = cls.Config(size=size, frames=script.frames, **settings)
    buffer = cls(cfg, script.spaces, script.envs, name="replay", rng=np.random.default_rng(seed))
    buffer.add_column("mark")
    if memory:
        buffer.store_memory((np.zeros((1, 1), np.float32),))
    return buffer


def marks(rollout: Rollout) -> np.ndarray:
    """A column of our own that can be told from the observation."""
    return rollout.raw_obs[:-1, :, -1, 2].astype(np.float32) / 4


def fill(buffer: Any, script: Script, plan: list[tuple[str, int]]) -> None:
    """Follow a plan of (what, how many steps)."""
    for what, steps in plan:
        if what == "barrier":
            script.barrier()
        rollout = script.rollout(steps, added=what != "elsewhere")
        if what != "elsewhere":
            buffer.add(rollout, mark=marks(rollout))
