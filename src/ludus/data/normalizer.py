"""Observation and reward normalisation: learned only from training collection, frozen everywhere else."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np

from ludus.errors import ConfigError
from ludus.math.running import RunningMoments
from ludus.types import Array

CLIP = 10.0
EPSILON = 1e-8


class ObservationNormalizer:
    """`rolling`: running mean and variance; `static`: the space's bounds mapped to [-1, 1]."""

    def __init__(self, mode: Literal["rolling", "static"], space: gym.Space) -> None:
        if not isinstance(space, gym.spaces.Box) or space.dtype == np.uint8:
            raise ConfigError(
                "environment.normalize_obs", f"needs a Box of real numbers, not {space}", "set it to false"
            )
        self.mode, self.space = mode, space
        self.moments = RunningMoments(space.shape)
        if mode == "static" and not np.isfinite([space.low, space.high]).all():
            raise ConfigError("environment.normalize_obs", "static needs finite bounds", "use rolling")
        self._set_scale()

    def update(self, obs_N: Array) -> None:
        """Learn from a batch [N, ...] of training observations."""
        if self.mode == "rolling":
            self.moments.update(obs_N)
            self._set_scale()

    def apply(self, obs_B: Array) -> Array:
        """Normalised float32 observations; changes nothing."""
        scaled = (obs_B - self._shift) * self._scale
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32, copy=False)

    def _set_scale(self) -> None:
        if self.mode == "static":
            low, high = self.space.low.astype(np.float64), self.space.high.astype(np.float64)
            shift, scale = (low + high) / 2, 2.0 / np.maximum(high - low, EPSILON)
        else:
            shift, scale = self.moments.mean, 1.0 / np.sqrt(self.moments.var + EPSILON)
        self._shift, self._scale = shift.astype(np.float32), scale.astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        """Running moments."""
        return self.moments.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with saved moments."""
        self.moments.load_state_dict(state)
        self._set_scale()


class RewardNormalizer:
    """Divides rewards by the running deviation of the discounted return (as VecNormalize does)."""

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.gamma = gamma
        self.moments = RunningMoments(())
        self.running = np.zeros(num_envs)

    def apply(self, reward_TB: Array, done_TB: Array) -> Array:
        """Learns from the rollout, then returns its rewards scaled."""
        returns = np.empty(reward_TB.shape)
        for t, (reward, done) in enumerate(zip(reward_TB, done_TB, strict=True)):
            self.running = self.running * self.gamma + reward
            returns[t] = self.running
            self.running = np.where(done, 0.0, self.running)
        self.moments.update(returns.reshape(-1))
        return self.scaled(reward_TB)

    def cut(self) -> None:
        """Every open episode ends here."""
        self.running = np.zeros_like(self.running)

    def scaled(self, reward: Array) -> Array:
        """Rewards in units of the deviation so far; changes nothing."""
        scale = 1.0 / np.sqrt(self.moments.var + EPSILON)
        return np.clip(reward * scale, -CLIP, CLIP).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        """Running moments and the open returns."""
        return {"moments": self.moments.state_dict(), "running": self.running}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with saved moments."""
        self.moments.load_state_dict(state["moments"])
        self.running = np.asarray(state["running"]).copy()
