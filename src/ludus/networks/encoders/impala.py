"""Pixels through the residual network of Espeholt et al. 2018 ("IMPALA", arXiv:1802.01561)."""

from __future__ import annotations

import gymnasium as gym
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from ludus.networks.encoders import image_shape
from ludus.networks.encoders._pixels import PixelConfig, PixelEncoder, convolution, convolve
from ludus.networks.encoders.mlp import linear
from ludus.registry import ENCODERS


class ImpalaConfig(PixelConfig):
    """One stack per entry of `channels`: a convolution, a pooling by two, two residual blocks."""

    channels: tuple[PositiveInt, ...] = Field(default=(16, 32, 32), min_length=1)
    """Channels of the stacks."""


@ENCODERS.register("impala")
class Impala(PixelEncoder):
    """Stacks of residual blocks, then one linear layer."""

    Config = ImpalaConfig
    smallest = 8

    def __init__(self, cfg: ImpalaConfig, space: gym.spaces.Box) -> None:
        super().__init__(space, cfg.divide_by)
        inputs, height, width = image_shape(space)
        blocks = 2 * len(cfg.channels)
        stacks: list[nn.Module] = []
        for channels in cfg.channels:
            stacks.append(Stack(inputs, channels, blocks))
            inputs, height, width = channels, -(-height // 2), -(-width // 2)
        self.stacks = nn.ModuleList(stacks)
        self.dense = linear(inputs * height * width, cfg.features)
        self.out_dim = cfg.features

    def forward(self, obs_TB: Tensor) -> Tensor:
        x = self.pixels(obs_TB)
        for i, stack in enumerate(self.stacks):
            x = stack(x, self.scale if i == 0 else None)
        return self.features(x.relu(), self.dense, obs_TB)


class Stack(nn.Module):
    """Convolution, pooling, two residual blocks."""

    def __init__(self, inputs: int, channels: int, blocks: int) -> None:
        super().__init__()
        self.enter = convolution(inputs, channels, 3, padding=1)
        self.first, self.second = Residual(channels, blocks), Residual(channels, blocks)

    def forward(self, x: Tensor, scale: float | None) -> Tensor:
        return self.second(self.first(max_pool2d(convolve(x, self.enter, scale), 3, 2, 1)))


class Residual(nn.Module):
    """Two convolutions beside the identity; scaled so that all blocks together add as much variance as they get."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.inner = convolution(channels, channels, 3, padding=1)
        self.outer = convolution(channels, channels, 3, padding=1, gain=blocks**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + convolve(convolve(x.relu(), self.inner).relu_(), self.outer)
