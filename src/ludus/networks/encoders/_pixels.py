"""The parts that convolutional encoders share: conversion of pixels, channels-last memory, scaling, flattening."""

from __future__ import annotations

from typing import ClassVar

import gymnasium as gym
import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

from ludus.config.model import Model
from ludus.errors import ConfigError
from ludus.networks.encoders import Encoder, image_shape
from ludus.networks.encoders.mlp import HIDDEN_GAIN
from ludus.networks.encoders.mlp import linear as linear_layer


class PixelConfig(Model):
    """Settings of every convolutional encoder."""

    features: PositiveInt = 256
    """Width of the last layer."""
    divide_by: PositiveFloat | None = None
    """Pixels are divided by this; none: by the largest value the space has, 255 for brightness, 10 for the codes of
    MiniGrid's cells."""


class PixelEncoder(Encoder):
    """uint8 images [T, B, C, H, W], bytes until here, scaled by the weights of the first layer.

    In channels-last memory convolutions train faster (measured: 1.6 times). `arrange` converts a rollout once; images
    in another layout are converted on the way from bytes to floats.
    """

    takes_images = heavy = True
    smallest: int
    """Least height and width."""

    def __init__(self, space: gym.spaces.Box, divide_by: float | None) -> None:
        super().__init__()
        self.scale = 1.0 / (divide_by or float(max(space.high.max(), 1)))
        _, height, width = image_shape(space)
        if min(height, width) < self.smallest:
            name, side = type(self).__name__.lower().removesuffix("encoder"), self.smallest
            problem = f"'{name}' needs images of at least {side}x{side} pixels, not {height}x{width}"
            raise ConfigError("network.encoder.type", problem, "use auto, which picks one that fits")

    def arrange(self, obs_TB: Tensor) -> Tensor:
        """The same images in channels-last memory, still bytes."""
        return channels_last(obs_TB)

    def pixels(self, obs_TB: Tensor) -> Tensor:
        """Images [N, C, H, W] as numbers from 0 to 255 of the encoder's precision, which holds them exactly."""
        return obs_TB.flatten(0, 1).to(self.precision.dtype, memory_format=torch.channels_last)

    def features(self, maps_N: Tensor, dense: nn.Linear, obs_TB: Tensor) -> Tensor:
        """[T, B, D] of feature maps [N, C, H, W], flattened in their order in memory: H, W, C."""
        flat = maps_N.permute(0, 2, 3, 1).flatten(1)
        out = linear(flat, dense.weight.to(flat.dtype), dense.bias.to(flat.dtype)).relu_()
        return out.float().unflatten(0, obs_TB.shape[:2])


class ThreeConvolutions(PixelEncoder):
    """Three convolutions, then one linear layer."""

    shapes: ClassVar[tuple[tuple[int, int, int], ...]]
    """(channels, size, stride) of each."""

    def __init__(self, cfg: PixelConfig, space: gym.spaces.Box) -> None:
        super().__init__(space, cfg.divide_by)
        channels, *sides = image_shape(space)
        layers = []
        for out, size, stride in self.shapes:
            layers.append(convolution(channels, out, size, stride))
            channels, sides = out, [(side - size) // stride + 1 for side in sides]
        self.first, self.second, self.third = layers
        self.dense = linear_layer(channels * sides[0] * sides[1], cfg.features)
        self.out_dim = cfg.features

    def forward(self, obs_TB: Tensor) -> Tensor:
        x = convolve(self.pixels(obs_TB), self.first, self.scale).relu_()
        x = convolve(x, self.second).relu_()
        x = convolve(x, self.third).relu_()
        return self.features(x, self.dense, obs_TB)


def channels_last(image_TB: Tensor) -> Tensor:
    """Images [T, B, C, H, W] with the channels side by side in memory."""
    stored = torch.empty_like(image_TB.movedim(2, -1), memory_format=torch.contiguous_format)
    for channel in range(image_TB.shape[2]):  # four times as fast as one permuting copy
        stored[..., channel] = image_TB[:, :, channel]
    return stored.movedim(-1, 2)


def convolution(
    channels: int, out: int, size: int, stride: int = 1, padding: int = 0, gain: float = HIDDEN_GAIN
) -> nn.Conv2d:
    """A convolution with orthogonal weights of the given gain and zero bias."""
    layer = nn.Conv2d(channels, out, size, stride, padding)
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def convolve(x: Tensor, layer: nn.Conv2d, scale: float | None = None) -> Tensor:
    """`layer` in the precision of x; `scale` multiplies its few weights, which is cheaper than scaling the input."""
    weight = layer.weight if scale is None else layer.weight * scale
    assert layer.bias is not None
    return conv2d(x, weight.to(x.dtype), layer.bias.to(x.dtype), layer.stride, layer.padding)
