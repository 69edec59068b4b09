"""Grids of cells through one 3x3 convolution: the network of Young and Tian 2019 ("MinAtar", arXiv:1903.03176)."""

from __future__ import annotations

import gymnasium as gym
from pydantic import PositiveInt
from torch import Tensor

from ludus.networks.encoders import image_shape
from ludus.networks.encoders._pixels import PixelConfig, PixelEncoder, convolution, convolve
from ludus.networks.encoders.mlp import linear
from ludus.registry import ENCODERS

SIZE = 3


class MinAtarConfig(PixelConfig):
    """One 3x3 convolution and one linear layer."""

    channels: PositiveInt = 16
    """Channels of the convolution."""
    features: PositiveInt = 128
    """Width of the last layer."""


@ENCODERS.register("minatar")
class MinAtarEncoder(PixelEncoder):
    """A convolution that sees the neighbours of a cell, then one linear layer."""

    Config = MinAtarConfig
    heavy = False
    smallest = SIZE

    def __init__(self, cfg: MinAtarConfig, space: gym.spaces.Box) -> None:
        super().__init__(space, cfg.divide_by)
        inputs, height, width = image_shape(space)
        self.first = convolution(inputs, cfg.channels, SIZE)
        self.dense = linear(cfg.channels * (height - SIZE + 1) * (width - SIZE + 1), cfg.features)
        self.out_dim = cfg.features

    def forward(self, obs_TB: Tensor) -> Tensor:
        x = convolve(self.pixels(obs_TB), self.first, self.scale).relu_()
        return self.features(x, self.dense, obs_TB)
