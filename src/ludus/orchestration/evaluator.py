"""Episodes in separate environments with the current weights, and when they are due; changes nothing in training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ludus.algorithms import Algorithm
from ludus.config.training import Evaluation
from ludus.data.normalizer import ObservationNormalizer
from ludus.envs.vector import VectorEnv
from ludus.play import PlayedStep, episodes, greedy, policy_of
from ludus.progress import Budget, Progress
from ludus.seeding import Streams

MOST_ENVS = 16
"""Environments of an evaluation whose config does not say how many."""


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """Results of an evaluation: raw returns of finished episodes."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    env_steps: int
    """Training steps done before it."""
    seconds: float
    deterministic: bool
    total_vec_steps: int = 0
    """Steps of all environments together that it took."""
    total_timesteps: int = 0
    """Steps of single environments that it took."""

    @classmethod
    def of(cls, steps: Iterable[PlayedStep], *, env_steps: int, start: float, deterministic: bool) -> EvalResult:
        """Of all episodes that these steps finish; `start` is the time (monotonic) when they began."""
        ended, vec_steps, taken = [], 0, 0
        for step in steps:
            ended += step.ended
            vec_steps, taken = vec_steps + 1, taken + len(step.reward)
        return cls(
            returns=tuple(end.total for end in ended),
            lengths=tuple(end.length for end in ended),
            env_steps=env_steps,
            seconds=time.monotonic() - start,
            deterministic=deterministic,
            total_vec_steps=vec_steps,
            total_timesteps=taken,
        )

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

    def __repr__(self) -> str:
        habit = "greedy" if self.deterministic else "sampled"
        return f"<{self.mean:,.2f} ± {self.std:,.2f} over {self.episodes} episodes, {habit} actions>"

    def state_dict(self) -> dict[str, object]:
        """Plain data for a checkpoint."""
        return {**asdict(self), "returns": list(self.returns), "lengths": list(self.lengths)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> EvalResult | None:
        """The inverse of `state_dict`."""
        if state is None:
            return None
        returns, lengths = tuple(map(float, state["returns"])), tuple(map(int, state["lengths"]))
        return cls(**{**state, "returns": returns, "lengths": lengths})

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
    """Runs an algorithm's `act` in separate environments, which are made on first use."""

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
        self.under_way = ""
        """What is being played, for the console."""
        self.deterministic = greedy(algorithm, cfg.deterministic)
        self.act = policy_of(algorithm, normalizer, deterministic=self.deterministic)

    def evaluate(self, env_steps: int) -> EvalResult:
        """The configured number of episodes; everything random follows from the seed and `env_steps` alone."""
        return self._play("evaluation", env_steps, self.cfg.episodes)

    def confirm(self, env_steps: int, count: int) -> EvalResult:
        """Fresh episodes: their seeds and actions come from streams of their own."""
        return self._play("confirmation", env_steps, count)

    def _play(self, stream: str, env_steps: int, count: int) -> EvalResult:
        if self._env is None:
            self._env = self._make_env(self.cfg.num_envs or min(self.cfg.episodes, MOST_ENVS))
        self._rng.bit_generator.state = self._streams.generator(f"{stream} actions {env_steps}").bit_generator.state
        seeds = self._streams.integers(f"{stream} {env_steps}", self._env.num_envs)
        start = time.monotonic()
        steps = episodes(self.act, self._env, seeds, count, timeout=self.cfg.timeout_seconds)
        told = self._told(stream, steps, count)
        return EvalResult.of(told, env_steps=env_steps, start=start, deterministic=self.deterministic)

    def _told(self, stream: str, steps: Iterable[PlayedStep], count: int) -> Iterator[PlayedStep]:
        """The same steps, while `under_way` says how far they are."""
        done, self.under_way = 0, stream
        for step in steps:
            if step.ended:
                done += len(step.ended)
                self.under_way = f"{stream}, {done} of {count} episodes"
            yield step
        self.under_way = ""

    def close(self) -> None:
        """Shut the environments down."""
        if self._env is not None:
            self._env.close()


class Every:
    """Due once for each multiple of `interval` that a growing count passes; never if the interval is none or 0."""

    def __init__(self, interval: int | None, start: int = 0) -> None:
        self.interval, self.seen = interval or 0, start

    def due(self, count: int) -> bool:
        """Whether a multiple lies in (the count before, this count]."""
        before, self.seen = self.seen, count
        return bool(self.interval) and count // self.interval > before // self.interval


class EvaluationDue:
    """The grids of evaluation after its warm-up: a warm-up of 50 epochs with every_epochs 15 starts at epoch 60."""

    def __init__(self, cfg: Evaluation, budget: Budget) -> None:
        self.budget, self.warmup = budget, cfg.warmup_epochs
        self.grids = {
            "epochs": Every(cfg.every_epochs),
            "env_steps": Every(cfg.every_steps),
            "updates": Every(cfg.every_updates),
        }

    def due(self, progress: Progress) -> bool:
        """Asked once at the end of every epoch."""
        wanted = sum(grid.due(getattr(progress, counter)) for counter, grid in self.grids.items()) > 0  # asks all
        if self.warmup >= 1:
            return wanted and progress.epochs > self.warmup
        return wanted and (self.warmup == 0 or self.budget.position(progress) > self.warmup * self.budget.total)

    def state_dict(self) -> dict[str, Any]:
        """The counts last seen."""
        return {counter: grid.seen for counter, grid in self.grids.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        for counter, grid in self.grids.items():
            grid.seen = state[counter]
