"""Acting by a plan: how it is sought, and its action, while training with the noise that the plan itself allows."""

from __future__ import annotations

from typing import Self

import gymnasium as gym
import numpy as np
from pydantic import Field, PositiveInt, model_validator

from ludus.acting.actor import Outputs
from ludus.acting.behaviour import Strategy
from ludus.acting.exploration import scale_to
from ludus.acting.facts import Makers
from ludus.config.model import Model
from ludus.config.schedule import PositiveSchedule, constant
from ludus.errors import ConfigError
from ludus.types import Array


class PlanConfig(Model):
    """Search for a plan (`path_integral` of math/planning.py)."""

    candidates: PositiveInt = 512
    """Sequences of actions in each round of planning, those of the policy included."""
    policy_candidates: int = Field(default=24, ge=0)
    """Sequences among them that the policy proposes."""
    rounds: PositiveInt = 6
    """Rounds of planning; two more where actions have 20 or more components."""
    elites: PositiveInt = 64
    """Best sequences that the next round is drawn around."""
    temperature: float = Field(default=0.5, ge=0, le=1e9)
    """How much more the better ones of them weigh: exp(temperature * return)."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Share of the mean of the round before in each new one."""
    max_std: float = Field(default=2.0, gt=0, le=1e6)
    """Deviation of the first round, and the largest of all."""
    min_std: PositiveSchedule = constant(0.05)
    """Least deviation of later rounds, and so of the noise while collecting."""
    planning_horizon: PositiveSchedule | None = None
    """Steps that plans look ahead, at most `horizon`; none: as many."""

    @model_validator(mode="after")
    def least_below_largest(self) -> Self:
        """Refuse a least deviation that is never reached."""
        least = max(self.min_std.start, self.min_std.end)
        if least > self.max_std:
            raise ValueError(f"min_std {least} is above max_std {self.max_std}")
        return self

    def check(self, num_envs: int) -> None:
        """The best sequences, and those of the policy, are some of the candidates."""
        if self.elites > self.candidates or self.policy_candidates >= self.candidates:
            problem = f"{self.candidates:,} candidates are too few for elites and policy_candidates"
            raise ConfigError("algorithm.candidates", problem, "raise it above both")


class AroundPlan(Strategy):
    """The output `plan` [B, A] between -1 and 1; with a random stream, noise of deviation `std` [B, A] around it."""

    scaled = True

    def __init__(self, space: gym.Space) -> None:
        self.space, self._scale = space, scale_to(space)

    def draw(self, outputs: Outputs, rng: np.random.Generator | None) -> Array:
        """The planned action, with noise only if a stream is given."""
        plan = outputs("plan")
        if rng is not None:
            plan = np.clip(plan + outputs("std") * rng.standard_normal(plan.shape, np.float32), -1.0, 1.0)
        return self._shaped(plan)

    def for_environment(self, stored: Array) -> Array:
        """Scaled to the bounds of the Box."""
        return self._scale(stored)

    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        """`value` is the return that the plan predicts."""
        return {
            "value": lambda: outputs("value"),
            "mean": lambda: self._shaped(outputs("plan")),
            "std": lambda: self._shaped(outputs("std")),
        }

    def _shaped(self, flat_BA: Array) -> Array:
        return flat_BA.reshape(len(flat_BA), *(self.space.shape or ()))
