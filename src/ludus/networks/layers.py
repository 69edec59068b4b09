"""Orthogonally initialised linear layers and the stacks made of them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

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
