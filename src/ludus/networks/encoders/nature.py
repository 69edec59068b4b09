"""Pixels through the convolutions of Mnih et al. 2015 ("Nature CNN", doi:10.1038/nature14236)."""

from __future__ import annotations

import gymnasium as gym
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from ludus.config.model import Model
from ludus.networks.encoders import image_shape
from ludus.networks.encoders._pixels import PixelEncoder, convolution, convolve
from ludus.networks.layers import linear
from ludus.registry import ENCODERS


class NatureConfig(Model):
    """Three convolutions and one linear layer."""

    features: PositiveInt = 512
    """Width of the last layer."""
    divide_by: PositiveFloat | None = None
    """Pixels are divided by this; none: by the largest value the space has, 255 for brightness."""


@ENCODERS.register("cnn")
@ENCODERS.register("nature")
class Nature(PixelEncoder):
    """32 8x8/4, 64 4x4/2, 64 3x3, then one linear layer."""

    Config = NatureConfig
    smallest = 36

    def __init__(self, cfg: NatureConfig, space: gym.spaces.Box) -> None:
        super().__init__(space, cfg.divide_by)
        channels, *sides = image_shape(space)
        self.first = convolution(channels, 32, 8, 4)
        self.second = convolution(32, 64, 4, 2)
        self.third = convolution(64, 64, 3)
        for size, stride in ((8, 4), (4, 2), (3, 1)):
            sides = [(side - size) // stride + 1 for side in sides]
        self.dense = linear(64 * sides[0] * sides[1], cfg.features)
        self.out_dim = cfg.features

    def forward(self, obs_TB: Tensor) -> Tensor:
        x = convolve(self.pixels(obs_TB), self.first, self.scale).relu_()
        x = convolve(x, self.second).relu_()
        x = convolve(x, self.third).relu_()
        return self.features(x, self.dense, obs_TB)
