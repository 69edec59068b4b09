"""A number that may change over a run: `3e-4`, `lin_0.001`, or `{start, end, from, to, schedule}`."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, GetJsonSchemaHandler, model_serializer, model_validator
from pydantic_core import CoreSchema

from ludus.config.model import Model

_SHORT = {"lin": "linear", "cos": "cosine"}


def expand(value: Any) -> dict[str, Any] | None:
    """The parts a number or `lin_0.001` gives, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    kind, _, number = value.rpartition("_") if isinstance(value, str) else ("", "", value)
    try:
        return {"start": float(number), "end": 0.0, "schedule": _SHORT[kind]} if kind else {"start": float(value)}
    except (KeyError, ValueError):
        return None


class Schedule(Model):
    """From `start` to `end` between two points of the run; constant when the two are equal."""

    model_config = ConfigDict(**{**Model.model_config, "populate_by_name": True})

    start: float = Field(allow_inf_nan=False)
    """Value up to `from`."""
    end: float = Field(allow_inf_nan=False)
    """Value from `to` on."""
    begin: float = Field(default=0.0, ge=0, alias="from")
    """Where the change begins: up to 1 a fraction of the budget, above 1 environment steps (updates in a run that is
    counted in updates)."""
    finish: float = Field(default=1.0, gt=0, alias="to")
    """Where the change is complete, in the same unit as `from`."""
    schedule: Literal["linear", "cosine", "exponential"] = "linear"
    """Shape of the change."""

    @model_validator(mode="before")
    @classmethod
    def short_forms(cls, value: Any) -> Any:
        parts = expand(value)
        if parts is None and isinstance(value, str):
            raise ValueError(f"'{value}' is neither a number nor of the form 'lin_0.001'")
        return {"end": parts["start"], **parts} if parts is not None else value

    @model_validator(mode="after")
    def sane(self) -> Schedule:
        if self.schedule == "exponential" and not (self.start > 0 and self.end > 0):
            raise ValueError("an exponential schedule needs start and end above 0")
        if (self.begin > 1) == (self.finish > 1) and self.begin >= self.finish:
            raise ValueError(f"'from' ({self.begin:g}) must be below 'to' ({self.finish:g})")
        return self

    @model_serializer
    def short(self) -> Any:
        if self.constant:
            return self.start
        return {
            "start": self.start,
            "end": self.end,
            "from": self.begin,
            "to": self.finish,
            "schedule": self.schedule,
        }

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        text = {"type": "string", "pattern": r"^((lin|cos)_)?[-+.0-9eE]+$"}
        return {"anyOf": [{"type": "number"}, text, handler.resolve_ref_schema(handler(core))]}

    @property
    def constant(self) -> bool:
        return self.start == self.end

    def at(self, position: int, total: int) -> float:
        """The value at a position of a run with that budget, both in the run's own unit."""
        if self.constant:
            return self.start
        begin = self.begin * total if self.begin <= 1 else self.begin
        finish = self.finish * total if self.finish <= 1 else self.finish
        x = min(max((position - begin) / max(finish - begin, 1e-9), 0.0), 1.0)
        if self.schedule == "exponential":
            return self.start * (self.end / self.start) ** x
        if self.schedule == "cosine":
            x = (1 - math.cos(math.pi * x)) / 2
        return self.start + (self.end - self.start) * x


def constant(value: float) -> Schedule:
    """A schedule that never changes, for defaults."""
    return Schedule(start=value, end=value)


def _positive(s: Schedule) -> Schedule:
    if s.start <= 0 or s.end < 0:
        raise ValueError(f"must start above 0 and stay at or above 0, got {s.start:g}" + _end(s))
    return s


def _not_negative(s: Schedule) -> Schedule:
    if s.start < 0 or s.end < 0:
        raise ValueError(f"must not be negative, got {s.start:g}" + _end(s))
    return s


def _fraction(s: Schedule) -> Schedule:
    if not (0 <= s.start <= 1 and 0 <= s.end <= 1):
        raise ValueError(f"must lie between 0 and 1, got {s.start:g}" + _end(s))
    return s


def _end(s: Schedule) -> str:
    return "" if s.constant else f" -> {s.end:g}"


PositiveSchedule = Annotated[Schedule, AfterValidator(_positive)]
NonNegativeSchedule = Annotated[Schedule, AfterValidator(_not_negative)]
UnitSchedule = Annotated[Schedule, AfterValidator(_fraction)]
