"""Episodes in separate environments with the current weights; changes nothing in training."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ludus.algorithms import Algorithm
from ludus.config.training import Evaluation
from ludus.data.normalizer import ObservationNormalizer
from ludus.envs.vector import VectorEnv
from ludus.errors import EnvironmentFailed
from ludus.seeding import Streams

MOST_ENVS = 16
MOST_LOST = 10
"""Broken steps in a row (`on_worker_death: restart`) after which an environment is given up."""


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """What an evaluation found; returns are raw, episodes are finished ones only."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    env_steps: int
    """Training steps done when it was made."""
    seconds: float
    deterministic: bool

    @property
    def episodes(self) -> int:
        """Finished episodes."""
        return len(self.returns)

    @property
    def mean(self) -> float:
        """Mean return; -inf when no episode finished in time."""
        return float(np.mean(self.returns)) if self.returns else -np.inf

    @property
    def std(self) -> float:
        """Deviation of the returns."""
        return float(np.std(self.returns)) if self.returns else 0.0

    @property
    def best(self) -> float:
        """Best return."""
        return max(self.returns, default=-np.inf)

    @property
    def worst(self) -> float:
        """Worst return."""
        return min(self.returns, default=-np.inf)

    @property
    def length_mean(self) -> float:
        """Mean episode length."""
        return float(np.mean(self.lengths)) if self.lengths else 0.0

    def state_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return {**asdict(self), "returns": list(self.returns), "lengths": list(self.lengths)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> EvalResult | None:
        """The inverse of `state_dict`."""
        if state is None:
            return None
        return cls(**{**state, "returns": tuple(state["returns"]), "lengths": tuple(state["lengths"])})

    def metrics(self) -> dict[str, float]:
        """For the `val` stage."""
        return {
            "roll/ep_rew/mean": self.mean,
            "roll/ep_rew/std": self.std,
            "roll/ep_rew/best": self.best,
            "roll/ep_rew/worst": self.worst,
            "roll/ep_len/mean": self.length_mean,
            "roll/episodes": float(self.episodes),
            "time/seconds": self.seconds,
        }


class Evaluator:
    """Runs an algorithm's `act` in environments of its own, made on first use."""

    def __init__(
        self,
        cfg: Evaluation,
        algorithm: Algorithm,
        make_env: Callable[[int], VectorEnv],
        streams: Streams,
        *,
        rng: np.random.Generator,
        normalizer: ObservationNormalizer | None = None,
    ) -> None:
        self.cfg, self.algorithm, self.normalizer = cfg, algorithm, normalizer
        self._make_env, self._streams, self._rng = make_env, streams, rng
        self._env: VectorEnv | None = None
        greedy = cfg.deterministic
        self.deterministic = algorithm.deterministic_evaluation if greedy is None else greedy

    def evaluate(self, env_steps: int) -> EvalResult:
        """The configured number of episodes; all that is random in it follows from the seed and `env_steps` alone."""
        if self._env is None:
            self._env = self._make_env(self.cfg.num_envs or min(self.cfg.episodes, MOST_ENVS))
        start = time.monotonic()
        self._rng.bit_generator.state = self._streams.generator(f"evaluation actions {env_steps}").bit_generator.state
        seeds = self._streams.integers(f"evaluation {env_steps}", self._env.num_envs)
        returns, lengths = self.run_episodes(self._env, seeds, self.cfg.episodes, self.cfg.timeout_seconds)
        return EvalResult(
            returns=tuple(returns),
            lengths=tuple(lengths),
            env_steps=env_steps,
            seconds=time.monotonic() - start,
            deterministic=self.deterministic,
        )

    def run_episodes(
        self, env: VectorEnv, seeds: Sequence[int], episodes: int, timeout: float | None
    ) -> tuple[list[float], list[int]]:
        """Returns and lengths of exactly `episodes` episodes.

        Every environment contributes its share: taking whichever episodes end first would favour short ones.
        """
        B = env.num_envs
        share = np.full(B, episodes // B) + (np.arange(B) < episodes % B)
        obs = env.reset(seeds)
        state, first = self.algorithm.initial_state(B), np.ones(B, bool)
        total, length = np.zeros(B), np.zeros(B, np.int64)
        returns, lengths, lost = [], [], 0
        deadline = np.inf if timeout is None else time.monotonic() + timeout
        while share.any() and time.monotonic() < deadline:
            seen = obs if self.normalizer is None else self.normalizer.apply(obs)
            action, state, _ = self.algorithm.act(seen, state, first, deterministic=self.deterministic)
            result = env.step(action)
            obs, first = result.obs, result.terminated | result.truncated
            total += env.raw_reward
            length += 1
            lost += env.broken is not None and bool(env.broken[share > 0].any())
            if lost > MOST_LOST:
                problem = f"its workers ended {lost} times in a row before an episode was over"
                raise EnvironmentFailed(env.id, problem, "no evaluation can end like this; look for what ends them")
            for b in np.flatnonzero(env.over(first)):
                if share[b] and not (env.broken is not None and env.broken[b]):  # lost with its worker: played again
                    share[b], lost = share[b] - 1, 0
                    returns.append(float(total[b]))
                    lengths.append(int(length[b]))
                total[b], length[b] = 0.0, 0
        return returns, lengths

    def close(self) -> None:
        """Shut the environments down."""
        if self._env is not None:
            self._env.close()
