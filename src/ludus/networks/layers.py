"""Orthogonally initialised linear layers and the stacks made of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ludus.kernels.normalization import rms_norm

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}
HIDDEN_GAIN = 2**0.5


def linear(in_dim: int, out_dim: int, gain: float = HIDDEN_GAIN) -> nn.Linear:
    """A linear layer with orthogonal weights of the given gain and zero bias."""
    layer = nn.Linear(in_dim, out_dim)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def stack(in_dim: int, hidden_dims: Sequence[int], activation: str) -> nn.Sequential:
    """Linear layers of the given widths, each followed by the activation; empty widths give the identity."""
    layers: list[nn.Module] = []
    for width in hidden_dims:
        layers += [linear(in_dim, width), ACTIVATIONS[activation]()]
        in_dim = width
    return nn.Sequential(*layers)


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension with a learned weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return rms_norm(x, self.weight)
