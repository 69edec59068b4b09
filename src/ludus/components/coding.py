"""How the outputs of a network stand for a number. Shapes: K outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from ludus.math.symlog import symexp, symlog, two_hot_cross_entropy


class Coding(nn.Module, ABC):
    """Outputs [..., K] <-> numbers [...]."""

    outputs: int

    @abstractmethod
    def loss(self, outputs_K: Tensor, target: Tensor) -> Tensor:
        """How far they are from a number, [...]."""

    @abstractmethod
    def mean(self, outputs_K: Tensor) -> Tensor:
        """The number, [...]."""


class SymlogBins(Coding):
    """A distribution over bins that are evenly spaced after symlog (TD-MPC2)."""

    def __init__(self, bins: int, limit: float) -> None:
        super().__init__()
        self.outputs = bins
        self.register_buffer("bins", torch.linspace(-limit, limit, bins), persistent=False)
        self.bins: Tensor

    def loss(self, outputs_K: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy towards the two bins next to the target."""
        return two_hot_cross_entropy(outputs_K, symlog(target), self.bins)

    def mean(self, outputs_K: Tensor) -> Tensor:
        """The number that the weighed bins stand for."""
        return symexp(outputs_K.softmax(-1) @ self.bins)


class Number(Coding):
    """The number itself, by squared errors (TD-MPC)."""

    outputs = 1

    def loss(self, outputs_K: Tensor, target: Tensor) -> Tensor:
        """Squared error."""
        return (outputs_K.squeeze(-1) - target).square()

    def mean(self, outputs_K: Tensor) -> Tensor:
        """The output itself."""
        return outputs_K.squeeze(-1)
