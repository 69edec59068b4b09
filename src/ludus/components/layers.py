"""Layers of world models as DreamerV3 has them: truncated normal weights, RMS normalisation, block-diagonal maps."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, linear, relu, rms_norm, silu

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {"silu": silu, "elu": elu, "relu": relu}
NORM_EPS = 1e-4
TRUNCATION = 0.87962566  # deviation of a standard normal cut at two deviations


def initialize(weight: Tensor, fan_in: int, scale: float = 1.0) -> None:
    """Truncated normal weights of variance scale² / fan_in."""
    std = scale / math.sqrt(fan_in) / TRUNCATION
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std) if scale else nn.init.zeros_(weight)


def dense(inputs: int, outputs: int, scale: float = 1.0) -> nn.Linear:
    """A linear layer with truncated normal weights and zero bias."""
    layer = nn.Linear(inputs, outputs)
    initialize(layer.weight, inputs, scale)
    nn.init.zeros_(layer.bias)
    return layer


class Normed(nn.Module):
    """RMS normalisation with a learned scale, then the activation."""

    def __init__(self, width: int, activation: str, norm: bool = True) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width)) if norm else None
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        if self.scale is not None:
            x = rms_norm(x, self.scale.shape, self.scale, NORM_EPS)
        return self.activation(x)


class DenseLayer(nn.Module):
    """Linear, normalisation, activation."""

    def __init__(self, inputs: int, outputs: int, activation: str, norm: bool = True) -> None:
        super().__init__()
        self.linear, self.normed = dense(inputs, outputs), Normed(outputs, activation, norm)

    def forward(self, x: Tensor) -> Tensor:
        """[..., outputs]"""
        return self.normed(self.linear(x))


class DenseStack(nn.Sequential):
    """Equally wide layers."""

    def __init__(self, inputs: int, layers: int, units: int, activation: str, norm: bool = True) -> None:
        widths = [inputs, *[units] * layers]
        super().__init__(*(DenseLayer(widths[i], widths[i + 1], activation, norm) for i in range(layers)))
        self.out_dim = widths[-1]


class BlockLinear(nn.Module):
    """Independent linear maps of the blocks of a vector: [..., G * I] -> [..., G * O].

    Its weights begin as small as those of a dense layer of the full width (pytorch/rl#4128).
    """

    def __init__(self, inputs: int, outputs: int, blocks: int, fan_in: int) -> None:
        super().__init__()
        self.blocks = blocks
        self.weight = nn.Parameter(torch.empty(blocks, inputs // blocks, outputs // blocks))
        self.bias = nn.Parameter(torch.zeros(outputs))
        initialize(self.weight, fan_in)

    def forward(self, x: Tensor) -> Tensor:
        """[N, outputs] of [N, inputs]."""
        parts = torch.bmm(x.unflatten(-1, (self.blocks, -1)).transpose(0, 1), self.weight)
        return parts.transpose(0, 1).flatten(1) + self.bias


class SplitLinear(nn.Module):
    """A linear map of two joined vectors whose halves can be computed apart: W [x, y] + b = (Wx x) + (Wy y + b)."""

    def __init__(self, first: int, second: int, outputs: int) -> None:
        super().__init__()
        self.first, self.joined = first, dense(first + second, outputs)

    def early(self, y: Tensor) -> Tensor:
        """The half that is known before the first vector is."""
        return linear(y, self.joined.weight[:, self.first :], self.joined.bias)

    def forward(self, x: Tensor, early: Tensor) -> Tensor:
        """[..., outputs]"""
        return linear(x, self.joined.weight[:, : self.first]) + early
