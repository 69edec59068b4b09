"""What a searched setting may be: a choice, or a distribution over numbers.

A search sees the *latent* of a parameter: a number in a range, or the position of a choice. `value` turns it into what
the config gets, so that every kind of distribution works with every sampler.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, product
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

from ludus.config.model import Model
from ludus.errors import ConfigError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

MOST_POINTS = 100_000
"""Points of a grid that are still enumerated."""
EXPONENT = 700.0
"""Largest power of e that is a number."""
EDGE = 1e-6
"""Share of a normal distribution that is cut off at either end."""

Latent = int | float
Kind = Literal["choice", "uniform", "log_uniform", "int", "log_int", "normal", "log_normal"]


class Parameter(Model):
    """One searched setting."""

    key: str
    """The setting, as an override names it."""
    kind: Kind
    """How its values are distributed."""
    values: tuple[Any, ...] = ()
    """What a `choice` chooses from."""
    probabilities: tuple[float, ...] = ()
    """How probable each of them is; none: equally."""
    low: float = 0.0
    """Smallest value; of a normal distribution the mean."""
    high: float = 0.0
    """Largest value; of a normal distribution the standard deviation."""
    step: float | None = None
    """Values are rounded to multiples of this."""

    def distribution(self) -> BaseDistribution:
        """The latent's range, for a sampler."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.kind == "choice" and not self.probabilities:
            return CategoricalDistribution(range(len(self.values)))
        if self.kind in ("int", "log_int"):
            return IntDistribution(int(self.low), int(self.high), log=self.kind == "log_int")
        if self.kind in ("uniform", "log_uniform"):
            return FloatDistribution(self.low, self.high, log=self.kind == "log_uniform")
        return FloatDistribution(EDGE, 1 - EDGE)  # a quantile

    def value(self, latent: Latent) -> Any:
        """The value of the setting."""
        if self.kind == "choice":
            return self.values[self._position(latent) if self.probabilities else int(latent)]
        if self.kind in ("int", "log_int"):
            return int(latent)
        number = float(latent)
        if self.kind in ("normal", "log_normal"):
            number = NormalDist(self.low, self.high).inv_cdf(number)
            number = math.exp(number) if self.kind == "log_normal" else number
        return number if self.step is None else self._rounded(number)

    def may_be(self, latent: Latent | None) -> bool:
        """Whether it can have this latent."""
        positions = self.kind == "choice" and not self.probabilities
        return latent is not None and (not positions or latent in range(len(self.values)))

    def latent(self, value: Any) -> Latent:
        """The latent of a value: what `value` undoes."""
        if self.kind == "choice":
            if value not in self.values:
                raise ConfigError(self.key, f"{value} is none of its values", "use the sweep that it belongs to")
            return self.points()[self.values.index(value)]
        if self.kind in ("normal", "log_normal"):
            number = math.log(value) if self.kind == "log_normal" else float(value)
            return NormalDist(self.low, self.high).cdf(number)
        return int(value) if self.kind in ("int", "log_int") else float(value)

    def points(self) -> list[Latent]:
        """Every latent of a grid, in order."""
        if self.kind == "choice":
            ends = list(accumulate(self.probabilities))  # the middle of each one's share
            shares = [end - part / 2 for end, part in zip(ends, self.probabilities, strict=True)]
            return list(shares) if self.probabilities else list(range(len(self.values)))
        if (self.high - self.low) / (self.step or 1.0) > MOST_POINTS and (self.kind == "int" or self.step is not None):
            raise ConfigError(self.key, f"more than {MOST_POINTS:,} values", "leave some out, or write method: random")
        if self.kind == "int":
            return list(range(int(self.low), int(self.high) + 1))
        if self.step is not None and self.kind == "uniform":
            first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
            return [min(max(i * self.step, self.low), self.high) for i in range(first, last + 1)]
        raise ConfigError(self.key, "a grid needs values, not a range", "write a list, or method: random or bayes")

    def extremes(self) -> list[Latent]:
        """Latents whose values show whether the setting takes what the parameter may be."""
        if self.kind == "choice":
            return self.points()
        if self.kind in ("normal", "log_normal"):
            return [0.01, 0.5, 0.99]
        return [int(self.low), int(self.high)] if self.kind in ("int", "log_int") else [self.low, self.high]

    def _position(self, latent: Latent) -> int:
        ends = accumulate(self.probabilities)
        return next((i for i, end in enumerate(ends) if latent < end), len(self.values) - 1)

    def _rounded(self, number: float) -> float | int:
        assert self.step is not None
        found = round(number / self.step) * self.step
        found = float(f"{found:.12g}")  # 0.1 * 3 is 0.30000000000000004
        return int(found) if float(self.step).is_integer() else found


def grid(parameters: Sequence[Parameter]) -> list[dict[str, Latent]]:
    """Every combination, the first parameter changing slowest."""
    axes = [parameter.points() for parameter in parameters]
    count = math.prod(map(len, axes))
    if count > MOST_POINTS:
        raise ConfigError("method: grid", f"{count:,} combinations", "leave values out, or write method: random")
    keys = [parameter.key for parameter in parameters]
    return [dict(zip(keys, point, strict=True)) for point in product(*axes)]


def values_of(parameters: Sequence[Parameter], latent: Mapping[str, Latent]) -> dict[str, Any]:
    """Latents as values, by key; only for the parameters that have one."""
    return {one.key: one.value(latent[one.key]) for one in parameters if one.key in latent}


def as_override(key: str, value: object) -> str:
    """`key=value` in Hydra's grammar."""
    return f"{key}={_text(value)}"


def _text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    quoted = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"
