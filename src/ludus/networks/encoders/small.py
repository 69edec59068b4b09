"""Tiny images, such as MiniGrid's 7x7 cells, through 2x2 convolutions."""

from __future__ import annotations

import gymnasium as gym
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from ludus.config.model import Model
from ludus.networks.encoders import image_shape
from ludus.networks.encoders._pixels import PixelEncoder, convolution, convolve
from ludus.networks.layers import linear
from ludus.registry import ENCODERS


class SmallConfig(Model):
    """Three 2x2 convolutions of 16, 32 and 64 channels and one linear layer, as in MiniGrid's documentation."""

    features: PositiveInt = 128
    """Width of the last layer."""
    divide_by: PositiveFloat | None = None
    """Pixels are divided by this; none: by the largest value the space has, 10 for the codes of MiniGrid's cells."""


@ENCODERS.register("small")
class Small(PixelEncoder):
    """16, 32 and 64 channels, then one linear layer."""

    Config = SmallConfig
    heavy = False
    smallest = 4

    def __init__(self, cfg: SmallConfig, space: gym.spaces.Box) -> None:
        super().__init__(space, cfg.divide_by)
        channels, height, width = image_shape(space)
        self.first = convolution(channels, 16, 2)
        self.second = convolution(16, 32, 2)
        self.third = convolution(32, 64, 2)
        self.dense = linear(64 * (height - 3) * (width - 3), cfg.features)
        self.out_dim = cfg.features

    def forward(self, obs_TB: Tensor) -> Tensor:
        x = convolve(self.pixels(obs_TB), self.first, self.scale).relu_()
        x = convolve(x, self.second).relu_()
        x = convolve(x, self.third).relu_()
        return self.features(x, self.dense, obs_TB)
