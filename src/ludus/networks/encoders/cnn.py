"""Pixels through the convolutions of Mnih et al. 2015 ("Nature CNN")."""

from __future__ import annotations

import gymnasium as gym
import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from ludus.config.model import Model
from ludus.errors import ConfigError
from ludus.networks.encoders import Encoder
from ludus.networks.layers import HIDDEN_GAIN, linear
from ludus.registry import ENCODERS


class CNNConfig(Model):
    """Three convolutions and one linear layer."""

    features: PositiveInt = 512
    """Width of the last layer."""


@ENCODERS.register("cnn")
class CNN(Encoder):
    """uint8 images, channels first, scaled to [0, 1] inside."""

    Config = CNNConfig

    def __init__(self, cfg: CNNConfig, space: gym.spaces.Box) -> None:
        super().__init__()
        channels, height, width = space.shape
        if min(height, width) < 36:
            raise ConfigError("network.encoder.type", f"a cnn needs at least 36x36 pixels, not {height}x{width}")
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
        )
        for layer in self.convolutions:
            if isinstance(layer, nn.Conv2d):
                nn.init.orthogonal_(layer.weight, HIDDEN_GAIN)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        with torch.no_grad():
            flat = self.convolutions(torch.zeros(1, *space.shape)).numel()
        self.project = nn.Sequential(linear(flat, cfg.features), nn.ReLU())
        self.out_dim = cfg.features

    def forward(self, obs_TB: Tensor) -> Tensor:
        pixels = obs_TB.flatten(0, 1).float() / 255.0
        return self.project(self.convolutions(pixels).flatten(1)).unflatten(0, obs_TB.shape[:2])
