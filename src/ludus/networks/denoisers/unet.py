"""A U-Net over time (Janner et al. 2022; Chi et al. 2023, arXiv:2303.04137): convolutions, halved lengths, skips.

Every block is scaled and shifted by what is known (FiLM: Perez et al. 2018, without the 1 in front of the scale). The
scales and shifts of all blocks come from one product, so that its parts for time and observations can be kept.

Shapes: B samples, C channels, T actions, A size of an action, F scales and shifts of all blocks.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from ludus.config.model import Model
from ludus.errors import ConfigError
from ludus.kernels.mish import mish
from ludus.networks.attention import sinusoids
from ludus.networks.denoisers import Denoiser, Denoises, Sizes
from ludus.networks.denoisers._unet_numpy import NumpyUNet
from ludus.registry import DENOISERS


class UNetConfig(Model):
    """Widths of the levels, and convolutions."""

    widths: tuple[PositiveInt, ...] = Field(default=(64, 128, 256), min_length=1)
    """Channels of each level; each but the first works on half as many steps as the one before."""
    kernel: PositiveInt = 5
    """Steps that a convolution sees; odd."""
    groups: PositiveInt = 8
    """Groups of channels that are normalised together."""
    time_dim: PositiveInt | None = None
    """Size of the embedding of the diffusion time, even; none: the first width, and at least 64."""

    @model_validator(mode="after")
    def whole_groups(self) -> Self:
        """Refuse sizes that do not divide evenly."""
        if any(width % self.groups for width in self.widths):
            raise ValueError(f"groups {self.groups} does not divide all widths {self.widths}")
        if self.kernel % 2 == 0 or (self.time_dim or 0) % 2:
            raise ValueError("kernel has to be odd and time_dim even")
        return self


@DENOISERS.register("unet")
class UNet(Denoiser):
    """Down to short sequences of many channels and up again, each level beside its equal."""

    Config = UNetConfig

    def __init__(self, cfg: UNetConfig, sizes: Sizes) -> None:
        super().__init__()
        halvings = len(cfg.widths) - 1
        if sizes.length % 2**halvings:
            problem = f"{sizes.length} actions cannot be halved {halvings} times, as {len(cfg.widths)} widths need"
            raise ConfigError("algorithm.prediction_horizon", problem, f"use a multiple of {2**halvings}")
        widths = cfg.widths
        self.time_dim = dim = cfg.time_dim or max(64, widths[0])
        self.embed = nn.Sequential(nn.Linear(dim, 4 * dim), Mish(), nn.Linear(4 * dim, dim))
        pairs = list(zip((sizes.action, *widths[:-1]), widths, strict=True))
        self.down: Any = nn.ModuleList(UNetLevel(cfg, *pair) for pair in pairs)
        self.middle: Any = UNetLevel(cfg, widths[-1], widths[-1])
        self.up: Any = nn.ModuleList(UNetLevel(cfg, 2 * high, low) for low, high in reversed(pairs[1:]))
        self.shorter: Any = nn.ModuleList(nn.Conv1d(width, width, 3, 2, 1) for width in widths[:-1])
        self.longer: Any = nn.ModuleList(nn.ConvTranspose1d(low, low, 4, 2, 1) for low, _ in reversed(pairs[1:]))
        self.last, self.out = Block(cfg, widths[0], widths[0]), nn.Conv1d(widths[0], sizes.action, 1)
        levels = [*self.down, self.middle, *self.up]
        self.film_sizes = [2 * width for level in levels for width in level.widths]
        self.film = nn.Linear(dim + sizes.observation * sizes.observations, sum(self.film_sizes))

    def time(self, time_N: Tensor) -> Tensor:
        """[N, F]"""
        known = self.embed(sinusoids(time_N, self.time_dim))
        return mish(known) @ self.film.weight[:, : self.time_dim].t()

    def seen(self, obs_BOD: Tensor) -> Tensor:
        """[B, F]"""
        return torch.addmm(self.film.bias, mish(obs_BOD.flatten(1)), self.film.weight[:, self.time_dim :].t())

    def for_few(self) -> Denoises:
        """In numpy."""
        return NumpyUNet(self) if self.film.weight.device.type == "cpu" else self

    def forward(self, x_BTA: Tensor, time: Tensor, seen: Tensor) -> Tensor:
        films = iter((time + seen).unsqueeze(-1).split(self.film_sizes, 1))
        x, beside = x_BTA.transpose(1, 2), []
        for level, shorter in zip(self.down, [*self.shorter, None], strict=True):
            x = level(x, films)
            beside.append(x)
            x = x if shorter is None else shorter(x)
        x = self.middle(x, films)
        for level, longer in zip(self.up, self.longer, strict=True):
            x = longer(level(torch.cat([x, beside.pop()], 1), films))
        return self.out(self.last(x)).transpose(1, 2)


class UNetLevel(nn.Module):
    """Two residual blocks."""

    def __init__(self, cfg: UNetConfig, inside: int, width: int) -> None:
        super().__init__()
        self.widths = (width, width)
        self.blocks: Any = nn.ModuleList([UNetResidual(cfg, inside, width), UNetResidual(cfg, width, width)])

    def forward(self, x_BCT: Tensor, films: Any) -> Tensor:
        for block in self.blocks:
            x_BCT = block(x_BCT, next(films))
        return x_BCT


class UNetResidual(nn.Module):
    """x + two blocks, scaled and shifted between them."""

    def __init__(self, cfg: UNetConfig, inside: int, width: int) -> None:
        super().__init__()
        self.first, self.second = Block(cfg, inside, width), Block(cfg, width, width)
        self.across = nn.Conv1d(inside, width, 1) if inside != width else nn.Identity()

    def forward(self, x_BCT: Tensor, film_B2C1: Tensor) -> Tensor:
        scale, shift = film_B2C1.chunk(2, 1)
        return self.across(x_BCT) + self.second(torch.addcmul(shift, scale, self.first(x_BCT)))


class Block(nn.Module):
    """Convolution, group norm, Mish."""

    def __init__(self, cfg: UNetConfig, inside: int, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(inside, width, cfg.kernel, padding=cfg.kernel // 2)
        self.norm = nn.GroupNorm(cfg.groups, width)

    def forward(self, x_BCT: Tensor) -> Tensor:
        return mish(self.norm(self.convolution(x_BCT)))


class Mish(nn.Module):
    """`kernels.mish` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        return mish(x)
