"""Observation and reward normalisation: training collection updates the statistics, nothing else does."""

from __future__ import annotations

from typing import Literal

import gymnasium as gym
import numpy as np

from ludus.config.schema import Environment, ExperimentConfig
from ludus.errors import ConfigError
from ludus.math.running import Everyone, RunningMoments
from ludus.types import Array, State, Tree, space_tree, tree_leaves, tree_map

CLIP = 10.0
EPSILON = 1e-8


class ObservationNormalizer:
    """Normalises every Box of numbers in an observation; images, discretes and other parts pass unchanged.

    `rolling` uses running mean and variance; `static` maps the space's bounds to [-1, 1].
    """

    def __init__(self, mode: Literal["rolling", "static"], space: gym.Space) -> None:

        def part(leaf: gym.Space) -> _BoxNormalizer | None:
            if isinstance(leaf, gym.spaces.Box) and leaf.dtype != np.uint8:
                return _BoxNormalizer(mode, leaf)
            return None

        self.everyone: Everyone = lambda own: [own]
        """The moments of the newest rollout of every rank."""
        self.parts: Tree = tree_map(part, space_tree(space))
        """A tree like observations, with None for parts that pass unchanged."""
        if not any(tree_leaves(self.parts)):
            problem = f"needs a Box of real numbers, not {space}"
            raise ConfigError("environment.normalize_obs", problem, "set it to false")

    def update(self, obs_N: Tree) -> None:
        """Learn from a batch [N, ...] of training observations."""
        tree_map(lambda part, obs: part and part.update(obs, self.everyone), self.parts, obs_N)

    def apply(self, obs_B: Tree) -> Tree:
        """Observations with float32 in the normalised parts; changes no statistics."""
        return tree_map(lambda part, obs: part.apply(obs) if part else obs, self.parts, obs_B)

    def storage(self, raw: Tree) -> Tree:
        """Arrays for the normalised twins of `raw`; parts that pass unchanged share their memory with it."""
        return tree_map(lambda part, leaf: np.zeros(leaf.shape, np.float32) if part else leaf, self.parts, raw)

    def state_dict(self) -> State:
        """Running moments of every part, in a tree like observations."""
        return tree_map(lambda part: part and part.moments.state_dict(), self.parts)

    def load_state_dict(self, state: State) -> None:
        """Continue with saved moments."""
        tree_map(lambda part, saved: part and part.load_state_dict(saved), self.parts, state)


class _BoxNormalizer:
    """Normalises one Box."""

    def __init__(self, mode: Literal["rolling", "static"], space: gym.spaces.Box) -> None:
        self.mode, self.space = mode, space
        self.moments = RunningMoments(space.shape)
        if mode == "static" and not np.isfinite([space.low, space.high]).all():
            raise ConfigError("environment.normalize_obs", "static needs finite bounds", "use rolling")
        self._set_scale()

    def update(self, obs_N: Array, everyone: Everyone) -> None:
        if self.mode == "rolling":
            self.moments.update(obs_N, everyone)
            self._set_scale()

    def apply(self, obs_B: Array) -> Array:
        scaled = (obs_B - self.shift) * self.scale
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32, copy=False)

    def _set_scale(self) -> None:
        if self.mode == "static":
            low, high = self.space.low.astype(np.float64), self.space.high.astype(np.float64)
            shift, scale = (low + high) / 2, 2.0 / np.maximum(high - low, EPSILON)
        else:
            shift, scale = self.moments.mean, 1.0 / np.sqrt(self.moments.var + EPSILON)
        self.shift, self.scale = shift.astype(np.float32), scale.astype(np.float32)

    def load_state_dict(self, state: State) -> None:
        self.moments.load_state_dict(state)
        self._set_scale()


class RewardNormalizer:
    """Divides rewards by the running deviation of the discounted return (as VecNormalize does)."""

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.gamma = gamma
        self.moments = RunningMoments(())
        self.running = np.zeros(num_envs)
        self.everyone: Everyone = lambda own: [own]
        """The moments of the newest rollout of every rank."""

    def apply(self, reward_TB: Array, done_TB: Array) -> Array:
        """Update the statistics with a rollout, then return its rewards scaled."""
        returns = np.empty(reward_TB.shape)
        for t, (reward, done) in enumerate(zip(reward_TB, done_TB, strict=True)):
            self.running = self.running * self.gamma + reward
            returns[t] = self.running
            self.running = np.where(done, 0.0, self.running)
        self.moments.update(returns.reshape(-1), self.everyone)
        return self.scaled(reward_TB)

    def cut(self) -> None:
        """End every open episode here."""
        self.running = np.zeros_like(self.running)

    def scaled(self, reward: Array) -> Array:
        """Rewards in units of the deviation so far; changes no statistics."""
        scale = 1.0 / np.sqrt(self.moments.var + EPSILON)
        return np.clip(reward * scale, -CLIP, CLIP).astype(np.float32)

    def state_dict(self) -> State:
        """Running moments and the open returns."""
        return {"moments": self.moments.state_dict(), "running": self.running}

    def load_state_dict(self, state: State) -> None:
        """Continue with saved moments."""
        self.moments.load_state_dict(state["moments"])
        self.running = np.asarray(state["running"]).copy()


def make_normalizer(cfg: Environment, space: gym.Space) -> ObservationNormalizer | None:
    """The observation normaliser the config asks for."""
    return ObservationNormalizer(cfg.normalize_obs, space) if cfg.normalize_obs else None


def make_reward_normalizer(config: ExperimentConfig, num_envs: int) -> RewardNormalizer | None:
    """Scales by the deviation of the return under the algorithm's own discount."""
    if not config.environment.normalize_reward:
        return None
    discount = config.algorithm.config.discount
    if discount is None:
        raise ConfigError("environment.normalize_reward", f"{config.algorithm.name} has no discount", "set it to false")
    return RewardNormalizer(num_envs, discount.start)
