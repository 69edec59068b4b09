"""Numbers scaled to [-1, 1] by the least and the largest of a data set, which are part of the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ludus.types import State

NARROW = 1e-4
"""Numbers that differ by less are only moved to 0: their differences are noise."""


class UnitRange:
    """The range of each of some numbers; before it is known, they stay as they are."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.low, self.high = torch.full((2, size), -1.0, device=device).unbind()
        self.high = -self.high
        self.known = False

    def fit(self, low: Tensor, high: Tensor) -> None:
        """Take over the least and the largest value of every number."""
        self.low, self.high, self.known = low.to(self.low), high.to(self.high), True

    def scaled(self, x: Tensor) -> Tensor:
        """To [-1, 1]."""
        middle, half = self._scale()
        return (x - middle) / half

    def restored(self, x: Tensor) -> Tensor:
        """From [-1, 1] back."""
        middle, half = self._scale()
        return x * half + middle

    def _scale(self) -> tuple[Tensor, Tensor]:
        half = (self.high - self.low) / 2
        return (self.high + self.low) / 2, torch.where(half < NARROW / 2, 1.0, half)

    def state_dict(self) -> State:
        """The range."""
        return {"low": self.low, "high": self.high, "known": self.known}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Take a range over; one of another size is refused."""
        low, high = (torch.as_tensor(state[name]) for name in ("low", "high"))
        if low.shape != self.low.shape or high.shape != self.high.shape:
            raise ValueError(f"a range of {len(low)} numbers, not {len(self.low)}")
        self.fit(low, high)
        self.known = bool(state["known"])
