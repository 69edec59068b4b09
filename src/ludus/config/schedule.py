"""A number that may change over a run: `3e-4`, `lin_0.001`, or `{start, end, from, to, schedule, warmup}`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, GetJsonSchemaHandler, model_serializer, model_validator
from pydantic_core import CoreSchema

from ludus.config.model import Model

PARTS = {"start", "end", "from", "to", "schedule", "warmup"}
_SHORT = {"lin": "linear", "cos": "cosine"}


def expand(value: object) -> dict[str, object] | None:
    """The parts of a schedule that a number or `lin_0.001` gives; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    kind, _, number = value.rpartition("_") if isinstance(value, str) else ("", "", value)
    try:
        return {"start": float(number), "end": 0.0, "schedule": _SHORT[kind]} if kind else {"start": float(value)}
    except (KeyError, ValueError):
        return None


class Schedule(Model):
    """A value that changes from `start` to `end` between two points of the run; constant if both are equal."""

    model_config = ConfigDict(**{**Model.model_config, "populate_by_name": True})

    start: float = Field(allow_inf_nan=False)
    """Value before and at `from`."""
    end: float = Field(allow_inf_nan=False)
    """Value at and after `to`."""
    begin: float = Field(default=0.0, ge=0, alias="from")
    """Position where the change begins: up to 1 it is a fraction of the budget, above 1 it is environment steps, or
    updates in a run that is counted in updates."""
    finish: float = Field(default=1.0, gt=0, alias="to")
    """Position where the change ends, counted like `from`."""
    schedule: Literal["linear", "cosine", "exponential"] = "linear"
    """Shape of the change."""
    warmup: float = Field(default=0.0, ge=0)
    """Length of a rise from 0 at the beginning of the run, counted like `from`; from then on the schedule holds."""

    @model_validator(mode="before")
    @classmethod
    def short_forms(cls, value: object) -> object:
        """Accept a number, `lin_0.001`, and a mapping with a shape but no end, which falls to 0."""
        parts = expand(value)
        if parts is None and isinstance(value, str):
            raise ValueError(f"'{value}' is neither a number nor of the form 'lin_0.001'")
        if isinstance(value, Mapping):
            end = 0.0 if "schedule" in value else value.get("start") if "warmup" in value else None
            return value if end is None else {"end": end, **value}
        return {"end": parts["start"], **parts} if parts is not None else value

    @model_validator(mode="after")
    def check(self) -> Schedule:
        """Refuse a change that ends before it begins, and one that no exponential reaches."""
        if self.schedule == "exponential" and not (self.start > 0 and self.end > 0):
            raise ValueError("an exponential schedule needs start and end above 0")
        if (self.begin > 1) == (self.finish > 1) and self.begin >= self.finish:
            raise ValueError(f"'from' ({self.begin:g}) must be below 'to' ({self.finish:g})")
        return self

    @model_serializer
    def short(self) -> float | dict[str, float | str]:
        """The number of a constant, else all parts."""
        if self.constant:
            return self.start
        ends = {"start": self.start, "end": self.end, "from": self.begin, "to": self.finish}
        return {**ends, "schedule": self.schedule, **({"warmup": self.warmup} if self.warmup else {})}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        text = {"type": "string", "pattern": r"^((lin|cos)_)?[-+.0-9eE]+$"}
        return {"anyOf": [{"type": "number"}, text, handler.resolve_ref_schema(handler(core))]}

    @property
    def constant(self) -> bool:
        """Whether the value never changes."""
        return self.start == self.end and not self.warmup

    def at(self, position: int, total: int) -> float:
        """The value at a position of a run with that budget, both in the run's own unit."""
        if self.constant:
            return self.start
        warmup = self.warmup * total if self.warmup <= 1 else self.warmup
        rise = min((position + 1) / warmup, 1.0) if warmup > 0 else 1.0
        return rise * self._at(position, total)

    def _at(self, position: int, total: int) -> float:
        """The value without a warm-up."""
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


def _checked(wanted: str, holds: Callable[[Schedule], bool]) -> AfterValidator:
    def check(schedule: Schedule) -> Schedule:
        if not holds(schedule):
            end = "" if schedule.constant else f" -> {schedule.end:g}"
            raise ValueError(f"must {wanted}, got {schedule.start:g}{end}")
        return schedule

    return AfterValidator(check)


PositiveSchedule = Annotated[
    Schedule, _checked("start above 0 and stay at or above 0", lambda s: s.start > 0 and s.end >= 0)
]
NonNegativeSchedule = Annotated[Schedule, _checked("not be negative", lambda s: s.start >= 0 and s.end >= 0)]
UnitSchedule = Annotated[Schedule, _checked("lie between 0 and 1", lambda s: 0 <= s.start <= 1 and 0 <= s.end <= 1)]
