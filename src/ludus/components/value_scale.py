"""The running range of values, which a policy's loss is divided by."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class ValueScale:
    """Running mean of the range from the 5th to the 95th percentile; never less than 1."""

    def __init__(self, device: torch.device) -> None:
        self.value = torch.ones((), device=device)

    def state_dict(self) -> dict[str, Tensor]:
        """The number."""
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take the number over."""
        self.value = torch.as_tensor(state["value"]).to(self.value)


def moved_scale(scale: Tensor, values: Tensor, rate: float = 0.01) -> Tensor:
    """The scale after one more batch of values."""
    levels = torch.tensor([0.05, 0.95], dtype=values.dtype, device=values.device)
    low, high = torch.quantile(values.flatten(), levels).unbind()
    return torch.lerp(scale, (high - low).clamp(min=1.0), rate)
