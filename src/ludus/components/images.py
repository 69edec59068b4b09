"""Images of any size from 7x7 to 96x96 down to a small grid and back up again, as in DreamerV3.

Encoder stage: convolution, 2x2 maximum, normalisation. Decoder stage: nearest neighbours, convolution, normalisation.
Shapes: N images, C channels, H height, W width.
"""

from __future__ import annotations

import itertools
from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d

from ludus.components.layers import ACTIVATIONS, NORM_EPS, Layer, dense, initialize
from ludus.config.model import Model

SMALLEST_GRID = 6
MULTIPLES = (2, 3, 4, 4)


class ImageConfig(Model):
    """Convolutions of encoders and decoders."""

    depth: PositiveInt = 4
    """Channels of the stages are 2, 3, 4 and 4 times this."""
    kernel: int = Field(default=5, ge=1, le=9)
    """Side of a convolution's kernel, an odd number."""
    activation: Literal["silu", "elu", "relu"] = "silu"
    """Nonlinearity."""
    norm: bool = True
    """Whether channels are normalised."""


def grids(height: int, width: int) -> list[tuple[int, int]]:
    """(height, width) of every stage, the image first."""
    sides = [(height, width)]
    while max(sides[-1]) > SMALLEST_GRID and len(sides) <= len(MULTIPLES):
        sides.append((sides[-1][0] // 2, sides[-1][1] // 2))
    return sides


class ImageEncoder(nn.Module):
    """uint8 images [..., C, H, W] -> [..., E]."""

    def __init__(self, cfg: ImageConfig, shape: tuple[int, int, int], largest: float) -> None:
        super().__init__()
        channels, *sides = shape
        self.scale, steps = 1.0 / largest, grids(sides[0], sides[1])
        widths = [channels, *(cfg.depth * MULTIPLES[i] for i in range(len(steps) - 1))]
        self.stages = nn.ModuleList(Convolution(cfg, a, b) for a, b in itertools.pairwise(widths))
        self.out_dim = widths[-1] * steps[-1][0] * steps[-1][1]

    def forward(self, image: Tensor) -> Tensor:
        """Features of images with any leading dimensions."""
        x = image.flatten(0, -4).to(torch.float32, memory_format=torch.channels_last) * self.scale - 0.5
        for stage in self.stages:
            assert isinstance(stage, Convolution)
            x = stage.normed(max_pool2d(stage(x), 2))
        return x.permute(0, 2, 3, 1).flatten(1).unflatten(0, image.shape[:-3])


class ImageDecoder(nn.Module):
    """Features [..., F] -> images [..., C, H, W] between 0 and 1."""

    def __init__(self, cfg: ImageConfig, inputs: int, units: int, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, *sides = shape
        self.grids = grids(sides[0], sides[1])[::-1]
        widths = [*(cfg.depth * MULTIPLES[i] for i in reversed(range(len(self.grids) - 1))), channels]
        self.start = widths[0]
        (height, width), self.hidden = self.grids[0], Layer(inputs, 2 * units, cfg.activation, cfg.norm)
        self.grid = dense(2 * units, height * width * self.start)
        self.stages = nn.ModuleList(Convolution(cfg, a, b) for a, b in itertools.pairwise(widths))

    def forward(self, features: Tensor) -> Tensor:
        """Images with the leading dimensions of the features."""
        flat = self.grid(self.hidden(features.flatten(0, -2)))
        x = flat.unflatten(-1, (*self.grids[0], self.start)).permute(0, 3, 1, 2)
        for i, (stage, grid) in enumerate(zip(self.stages, self.grids[1:], strict=True)):
            assert isinstance(stage, Convolution)
            x = stage(interpolate(x, size=grid, mode="nearest"))
            x = stage.normed(x) if i < len(self.stages) - 1 else x.sigmoid()
        return x.contiguous().unflatten(0, features.shape[:-1])


class Convolution(nn.Conv2d):
    """A convolution that keeps height and width, and the normalisation that follows it."""

    def __init__(self, cfg: ImageConfig, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, cfg.kernel, padding=cfg.kernel // 2)
        initialize(self.weight, inputs * cfg.kernel**2)
        nn.init.zeros_(self.bias)  # type: ignore[arg-type]
        self.norm_scale = nn.Parameter(torch.ones(outputs, 1, 1)) if cfg.norm else None
        self.activation = ACTIVATIONS[cfg.activation]

    def normed(self, x: Tensor) -> Tensor:
        """RMS normalisation of each pixel's channels, then the activation."""
        if self.norm_scale is not None:
            x = x * (x.square().mean(1, keepdim=True) + NORM_EPS).rsqrt() * self.norm_scale
        return self.activation(x)
