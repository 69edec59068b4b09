"""Ends a run that has reached its goal or its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ludus.config.schema import Stop
from ludus.orchestration.callbacks import Callback

if TYPE_CHECKING:
    from ludus.orchestration.evaluator import EvalResult
    from ludus.orchestration.orchestrator import Orchestrator


class EarlyStop(Callback):
    """Stops on training reward, evaluated reward or wall time."""

    def __init__(self, cfg: Stop, eval_reward: float | None) -> None:
        self.cfg, self.eval_reward = cfg, eval_reward

    def on_evaluation(self, run: Orchestrator, result: EvalResult) -> None:
        """The evaluated mean return is high enough."""
        if self.eval_reward is not None and result.mean >= self.eval_reward:
            run.stop(f"evaluated mean return {result.mean:g} reached {self.eval_reward:g}")

    def on_epoch_end(self, run: Orchestrator, row: Mapping[str, float | str]) -> None:
        """Training reward or time."""
        goal, reward = self.cfg.train_reward, row.get("train/roll/ep_rew/mean")
        if goal is not None and isinstance(reward, float) and reward >= goal:
            run.stop(f"training mean return {reward:g} reached {goal:g}")
        if self.cfg.minutes is not None and run.seconds >= 60 * self.cfg.minutes:
            run.stop(f"{self.cfg.minutes:g} minutes are over")
