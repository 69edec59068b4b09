"""Images down to a small grid and back up again, as in DreamerV3; those of sides up to 6 are such a grid.

Encoder stage: convolution, 2x2 maximum, normalisation. Decoder stage: nearest neighbours, convolution, normalisation.
Shapes: N images, C channels, H height, W width.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d

from ludus.components.layers import ACTIVATIONS, NORM_EPS, BlockLinear, DenseLayer, dense, initialize
from ludus.config.model import Model
from ludus.networks.encoders._pixels import convolve
from ludus.networks.precision import Precision

SMALLEST_GRID, BLOCKS = 6, 8
MULTIPLES = (2, 3, 4, 4)


class ImageConfig(Model):
    """Convolutions of encoders and decoders."""

    depth: PositiveInt = 4
    """Channels of the stages are 2, 3, 4 and 4 times this."""
    kernel: Literal[1, 3, 5, 7, 9] = 5
    """Side of a convolution's kernel."""
    activation: Literal["silu", "elu", "relu"] = "silu"
    """Nonlinearity."""
    norm: bool = True
    """Whether channels are normalised."""


def grids(height: int, width: int) -> list[tuple[int, int]]:
    """(height, width) of every stage, the image first."""
    sides = [(height, width)]
    while max(sides[-1]) > SMALLEST_GRID and min(sides[-1]) > 1 and len(sides) <= len(MULTIPLES):
        sides.append((sides[-1][0] // 2, sides[-1][1] // 2))
    return sides


class ImageEncoder(nn.Module):
    """uint8 images [..., C, H, W] -> [..., E]."""

    precision = Precision()
    """Number type of feature maps; weights and what comes out stay float32."""

    def __init__(self, cfg: ImageConfig, shape: tuple[int, int, int], largest: float) -> None:
        super().__init__()
        channels, *sides = shape
        self.scale, steps = 1.0 / largest, grids(sides[0], sides[1])
        widths = [channels, *(cfg.depth * MULTIPLES[i] for i in range(len(steps) - 1))]
        self.stages = nn.Sequential(*(Convolution(cfg, *ends, pool=True) for ends in pairwise(widths)))
        self.out_dim = widths[-1] * steps[-1][0] * steps[-1][1]

    def forward(self, image: Tensor) -> Tensor:
        """Features of images with any leading dimensions."""
        x = image.flatten(0, -4).to(torch.float32, memory_format=torch.channels_last) * self.scale - 0.5
        x = self.stages(x.to(self.precision.dtype))
        return x.permute(0, 2, 3, 1).flatten(1).unflatten(0, image.shape[:-3]).float()


class ImageDecoder(nn.Module):
    """Features [..., F] -> images [..., C, H, W] between 0 and 1.

    The first `memory` features reach the grid by a block-diagonal map, which grows less than a dense one.
    """

    precision = Precision()
    """Number type of feature maps; weights and images stay float32."""

    def __init__(self, cfg: ImageConfig, inputs: int, memory: int, units: int, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, *sides = shape
        self.grids, self.memory_dim = grids(sides[0], sides[1])[::-1], memory
        widths = [*(cfg.depth * MULTIPLES[i] for i in reversed(range(len(self.grids) - 1))), channels]
        (height, width), self.start = self.grids[0], widths[0]
        cells, self.blocks = height * width * self.start, math.gcd(BLOCKS, self.start, memory or BLOCKS)
        self.memory = BlockLinear(memory, cells, self.blocks, memory) if memory else None
        self.latent = nn.Sequential(
            DenseLayer(inputs - memory, 2 * units, cfg.activation, cfg.norm), dense(2 * units, cells)
        )
        ends = list(pairwise(widths))
        self.normed = ChannelNorm(cfg, self.start) if ends else nn.Identity()  # a tiny image is the grid itself
        self.stages = nn.ModuleList(Convolution(cfg, *pair, last=pair is ends[-1]) for pair in ends)

    def forward(self, features: Tensor) -> Tensor:
        """Images with the leading dimensions of the features."""
        flat, (height, width) = features.flatten(0, -2), self.grids[0]
        x = self.latent(flat[:, self.memory_dim :])
        if self.memory is not None:
            x = x + self.memory(flat[:, : self.memory_dim])
        # each block has a few channels of the whole grid
        x = x.view(-1, self.blocks, height, width, self.start // self.blocks).permute(0, 1, 4, 2, 3).flatten(1, 2)
        x = self.normed(x.to(self.precision.dtype, memory_format=torch.channels_last))
        for stage, grid in zip(self.stages, self.grids[1:], strict=True):
            x = stage(interpolate(x, size=grid, mode="nearest"))
        return x.float().sigmoid().contiguous().unflatten(0, features.shape[:-1])


def compute_in(network: nn.Module, precision: Precision | None) -> None:
    """Let all convolutions of a network follow the run's precision."""
    for part in network.modules():
        if precision is not None and hasattr(part, "precision"):
            part.precision = precision  # type: ignore[assignment]


class ChannelNorm(nn.Module):
    """RMS normalisation of each pixel's channels, then the activation."""

    def __init__(self, cfg: ImageConfig, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, 1, 1)) if cfg.norm else None
        self.activation = ACTIVATIONS[cfg.activation]

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        if self.scale is not None:
            x = x * (x.square().mean(1, keepdim=True) + NORM_EPS).rsqrt() * self.scale.to(x.dtype)
        return self.activation(x)


class Convolution(nn.Module):
    """A convolution that keeps height and width, with `pool` halved; all but the last are normalised."""

    def __init__(self, cfg: ImageConfig, inputs: int, outputs: int, *, pool: bool = False, last: bool = False) -> None:
        super().__init__()
        self.pool, self.normed = pool, nn.Identity() if last else ChannelNorm(cfg, outputs)
        self.layer = nn.Conv2d(inputs, outputs, cfg.kernel, padding=cfg.kernel // 2)
        initialize(self.layer.weight, inputs * cfg.kernel**2)
        nn.init.zeros_(self.layer.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """[N, outputs, H, W], or half of both sides."""
        x = convolve(x, self.layer)
        return self.normed(max_pool2d(x, 2) if self.pool else x)
