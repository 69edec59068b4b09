"""The running range of returns or values, from their 5th to their 95th percentile: a policy's loss is divided by it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

RATE = 0.01
"""How far it moves with every batch."""


class RunningRange:
    """Holds both ends, or the width alone, from one update to the next."""

    def __init__(self, start: Tensor) -> None:
        self.value = start

    def state_dict(self) -> dict[str, Tensor]:
        """The numbers."""
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take the numbers over."""
        self.value = torch.as_tensor(state["value"]).to(self.value)


def percentiles(values: Tensor) -> Tensor:
    """The 5th and the 95th."""
    levels = torch.tensor([0.05, 0.95], dtype=values.dtype, device=values.device)
    return torch.quantile(values.flatten(), levels)


def moved_ends(ends_2: Tensor, values: Tensor, rate: float = RATE) -> Tensor:
    """Both ends after one more batch (Dreamer 3); they may lie closer together than 1."""
    return torch.lerp(ends_2, percentiles(values), rate)


def moved_width(width: Tensor, values: Tensor, rate: float = RATE) -> Tensor:
    """The width after one more batch (TD-MPC2), which counts as 1 if it is less."""
    low, high = percentiles(values).unbind()
    return torch.lerp(width, (high - low).clamp(min=1.0), rate)
