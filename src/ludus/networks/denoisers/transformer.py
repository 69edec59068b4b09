"""A causal transformer over the actions of a sequence (Chi et al. 2023, arXiv:2303.04137).

Every action looks at the actions before it, at the diffusion time, and at the observations made up to it.

Shapes: B samples, T actions, A size of an action, O observations, K = 1 + O things known, H width.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ludus.config.model import Model
from ludus.networks.attention import sinusoids
from ludus.networks.denoisers import Denoiser, Sizes
from ludus.registry import DENOISERS

FIRST_STD = 0.02
"""Deviation of weights and places at first."""


class DenoiserTransformerConfig(Model):
    """Blocks of attention and feedforward layers."""

    width: PositiveInt = 128
    """Width of the residual stream; even."""
    layers: PositiveInt = 4
    """Blocks."""
    heads: PositiveInt = 4
    """Attention heads; must divide `width`."""

    @model_validator(mode="after")
    def whole_heads(self) -> Self:
        """Refuse heads that do not divide the width."""
        if self.width % self.heads or self.width % 2:
            raise ValueError(f"width {self.width} has to be even and a multiple of heads {self.heads}")
        return self


@DENOISERS.register("transformer")
class Transformer(Denoiser):
    """Actions with their places -> blocks -> noise."""

    Config = DenoiserTransformerConfig

    def __init__(self, cfg: DenoiserTransformerConfig, sizes: Sizes) -> None:
        super().__init__()
        self.width = cfg.width
        self.actions, self.observations = nn.Linear(sizes.action, cfg.width), nn.Linear(sizes.observation, cfg.width)
        self.places = nn.Parameter(torch.zeros(sizes.length, cfg.width))
        self.known_places = nn.Parameter(torch.zeros(1 + sizes.observations, cfg.width))
        self.known = feedforward(cfg.width, nn.Mish())
        self.blocks: Any = nn.ModuleList(DenoiserBlock(cfg) for _ in range(cfg.layers))
        self.norm, self.out = nn.LayerNorm(cfg.width), nn.Linear(cfg.width, sizes.action)
        later = torch.arange(sizes.length).unsqueeze(1) + 1 >= torch.arange(1 + sizes.observations)
        self.register_buffer("sees_TK", later, persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=FIRST_STD)
                nn.init.zeros_(module.bias)
        for places in (self.places, self.known_places):
            nn.init.normal_(places, std=FIRST_STD)

    def time(self, time_N: Tensor) -> Tensor:
        """[N, 1, H]"""
        return self.known(sinusoids(time_N, self.width) + self.known_places[0]).unsqueeze(1)

    def seen(self, obs_BOD: Tensor) -> Tensor:
        """[B, O, H]"""
        return self.known(self.observations(obs_BOD) + self.known_places[1:])

    def forward(self, x_BTA: Tensor, time: Tensor, seen: Tensor) -> Tensor:
        known_BKH = torch.cat([time.expand(len(seen), -1, -1), seen], 1)
        x = self.actions(x_BTA) + self.places
        for block in self.blocks:
            x = block(x, known_BKH, self.sees_TK)
        return self.out(self.norm(x))


class DenoiserBlock(nn.Module):
    """Attention to earlier actions, attention to what is known, a feedforward layer; each after a norm."""

    def __init__(self, cfg: DenoiserTransformerConfig) -> None:
        super().__init__()
        self.norms: Any = nn.ModuleList(nn.LayerNorm(cfg.width) for _ in range(3))
        self.earlier, self.known = DenoiserAttention(cfg), DenoiserAttention(cfg)
        self.feedforward = feedforward(cfg.width, nn.GELU())

    def forward(self, x_BTH: Tensor, known_BKH: Tensor, sees_TK: Tensor) -> Tensor:
        inputs = self.norms[0](x_BTH)
        x = x_BTH + self.earlier(inputs, inputs, None)
        x = x + self.known(self.norms[1](x), known_BKH, sees_TK)
        return x + self.feedforward(self.norms[2](x))


class DenoiserAttention(nn.Module):
    """Attention of several heads; without a mask every step sees itself and those before it."""

    def __init__(self, cfg: DenoiserTransformerConfig) -> None:
        super().__init__()
        self.heads = cfg.heads
        self.query, self.both, self.out = (nn.Linear(cfg.width, size * cfg.width) for size in (1, 2, 1))

    def forward(self, x_BTH: Tensor, known_BKH: Tensor, sees_TK: Tensor | None) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(x_BTH), *self.both(known_BKH).chunk(2, -1))
        )
        found = scaled_dot_product_attention(query, key, value, attn_mask=sees_TK, is_causal=sees_TK is None)
        return self.out(found.transpose(1, 2).flatten(2))


def feedforward(width: int, activation: nn.Module) -> nn.Sequential:
    """Two layers, the inner one four times as wide."""
    return nn.Sequential(nn.Linear(width, 4 * width), activation, nn.Linear(4 * width, width))
