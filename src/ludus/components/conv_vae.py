"""V of World Models (Ha & Schmidhuber 2018): a convolutional variational autoencoder.

64 x 64 pixels give the layers of the paper; smaller images have fewer of them. Shapes: N images, C channels, H height,
W width, Z latent numbers.
"""

from __future__ import annotations

from itertools import pairwise, zip_longest

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ludus.config.model import Model

KERNEL, MOST_STAGES = 4, 4
WIDEST = 6
"""A transposed convolution from one pixel makes at most this many."""


class VisionConfig(Model):
    """Image -> Gaussian over latent numbers -> image."""

    latent: PositiveInt = 32
    """Latent numbers."""
    depth: PositiveInt = 32
    """Channels of the first convolution; every later one doubles them."""
    free_nats: float = Field(default=0.5, ge=0, le=1e6)
    """Divergence from the standard normal, per latent number, that costs nothing."""


def encoder_sides(side: int) -> list[int]:
    """Sides of an image after each convolution, the image first: 64, 31, 14, 6, 2."""
    sides = [side]
    while sides[-1] >= KERNEL and len(sides) <= MOST_STAGES:
        sides.append((sides[-1] - KERNEL) // 2 + 1)
    return sides


def decoder_kernels(side: int) -> list[int]:
    """Kernels of transposed convolutions of stride 2 from one pixel to `side`: 5, 5, 6, 6 for 64."""
    kernels: list[int] = []
    while side > WIDEST:
        kernels.insert(0, 5 + (side % 2 == 0))
        side = (side - kernels[0]) // 2 + 1
    return [side, *kernels]


class ConvVAE(nn.Module):
    """Convolutions down to a Gaussian, transposed convolutions back up; images are numbers between 0 and 1."""

    def __init__(self, cfg: VisionConfig, shape: tuple[int, int, int], largest: float) -> None:
        super().__init__()
        channels, height, width = shape
        self.cfg, self.scale, self.latent = cfg, 1.0 / largest, cfg.latent
        down = list(zip(encoder_sides(height), encoder_sides(width), strict=False))
        widths = [channels, *(cfg.depth << i for i in range(len(down) - 1))]
        self.encoder = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(*ends, KERNEL, 2), nn.ReLU()) for ends in pairwise(widths)), nn.Flatten()
        )
        inside = widths[-1] * down[-1][0] * down[-1][1]
        self.posterior = nn.Linear(inside, 2 * cfg.latent)
        up = list(zip_longest(decoder_kernels(height)[::-1], decoder_kernels(width)[::-1], fillvalue=1))[::-1]
        self.start = cfg.depth << (len(up) + 1)
        widths = [self.start, *(cfg.depth << i for i in reversed(range(len(up) - 1))), channels]
        self.grid = nn.Linear(cfg.latent, self.start)
        layers = [
            layer
            for ends, kernel in zip(pairwise(widths), up, strict=True)
            for layer in (nn.ReLU(), nn.ConvTranspose2d(*ends, kernel, 2))
        ]
        self.decoder = nn.Sequential(*layers[1:])  # the paper has no activation after the linear layer
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")  # torch's own: images look all the same
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def encode(self, image: Tensor) -> Tensor:
        """Mean and logarithm of the variance, [..., 2 Z], of images [..., C, H, W]."""
        x = image.flatten(0, -4).to(torch.float32, memory_format=torch.channels_last) * self.scale
        return self.posterior(self.encoder(x)).unflatten(0, image.shape[:-3])

    def decode(self, z: Tensor) -> Tensor:
        """Images [..., C, H, W] of latent numbers [..., Z]."""
        x = self.grid(z.flatten(0, -2)).unflatten(-1, (self.start, 1, 1))
        x = self.decoder(x.contiguous(memory_format=torch.channels_last))
        return x.sigmoid().contiguous().unflatten(0, z.shape[:-1])

    def losses(self, image_N: Tensor, noise_NZ: Tensor) -> tuple[Tensor, Tensor]:
        """(squared error, divergence) [N]: both sums, the divergence at least what is free."""
        posterior = self.encode(image_N)
        error = (self.decode(sample(posterior, noise_NZ)) - image_N.float() * self.scale).square().sum((-3, -2, -1))
        return error, divergence(posterior).clamp(min=self.cfg.free_nats * self.latent)


def sample(posterior_2Z: Tensor, noise_Z: Tensor | None) -> Tensor:
    """Latent numbers of a Gaussian; without noise its mean."""
    mean, log_variance = posterior_2Z.chunk(2, -1)
    return mean if noise_Z is None else mean + (0.5 * log_variance).exp() * noise_Z


def divergence(posterior_2Z: Tensor) -> Tensor:
    """KL [...] of a Gaussian from the standard normal one."""
    mean, log_variance = posterior_2Z.chunk(2, -1)
    return -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1)
