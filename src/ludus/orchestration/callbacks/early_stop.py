"""Early stops: the run has reached its goal, or its time is up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ludus.config.training import Stop
from ludus.data.episodes import WINDOW
from ludus.errors import ConfigError
from ludus.metrics.names import RETURN
from ludus.orchestration.callbacks import Callback
from ludus.types import Report

if TYPE_CHECKING:
    from ludus.orchestration.evaluator import EvalResult
    from ludus.run import Run


class EarlyStop(Callback):
    """Stops on training reward, evaluated reward or wall time."""

    def __init__(self, cfg: Stop, threshold: float | None) -> None:
        self.minutes = cfg.minutes
        self.eval_reward = goal("eval_reward", cfg.eval_reward, threshold)
        self.train_reward = goal("train_reward", cfg.train_reward, threshold)

    def on_report(self, run: Run, hook: str, report: Report) -> None:
        """Time is up: an epoch may take minutes."""
        if self.minutes is not None and run.seconds >= 60 * self.minutes:
            run.stop(f"{self.minutes:g} minutes are over")

    def on_evaluation(self, run: Run, result: EvalResult) -> None:
        """The evaluated mean return is high enough: fresh episodes tell whether that was luck."""
        if self.eval_reward is not None and result.mean >= self.eval_reward:
            if episodes := run.config.training.confirm_episodes:
                run.confirm(episodes)
            else:
                run.stop(f"evaluated mean return {result.mean:g} reached {self.eval_reward:g}")

    def on_confirmation(self, run: Run, result: EvalResult) -> None:
        """Stop, or train on after a lucky evaluation."""
        if self.eval_reward is None:
            return
        found = f"mean return {result.mean:g} over {result.episodes} fresh episodes"
        if result.mean < self.eval_reward:
            run.say(f"the evaluation reached {self.eval_reward:g}, its confirmation did not: {found}; training goes on")
        else:
            run.stop(f"{found} reached {self.eval_reward:g}")

    def on_epoch_end(self, run: Run) -> None:
        """The training return is high enough, over as many episodes as its mean is taken over."""
        if self.train_reward is not None:
            metrics = run.recorder.epoch
            reward, episodes = metrics.get(RETURN, -math.inf), metrics.get("train/roll/episodes", WINDOW)
            if episodes >= WINDOW and reward >= self.train_reward:
                run.stop(f"training mean return {reward:g} reached {self.train_reward:g}")


def goal(field: str, value: float | str | None, threshold: float | None) -> float | None:
    """The number that a goal stands for: itself, or the threshold of the environment."""
    if isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"training.stop.{field}", "is no number, which no return reaches", "give a number, or null")
    if value is None or isinstance(value, float):
        return value
    if threshold is None:
        remedy = "give a number, or set environment.reward_threshold"
        raise ConfigError(f"training.stop.{field}", "this environment has no threshold of its own", remedy)
    return threshold
