"""Gated Transformer-XL (Parisotto et al. 2020, arXiv:1910.06764): GRU gates in place of residual connections.

A bias keeps the gates nearly shut at first, so that the network begins as its own input projection.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ludus.networks.attention import AttentionWindow
from ludus.networks.transformer import TransformerBlock, TransformerConfig, TransformerCore
from ludus.registry import MEMORY


class GTrXLConfig(TransformerConfig):
    """Gated Transformer-XL blocks."""

    gate_bias: float = 2.0
    """How far the gates are shut at the start."""


class GatedBlock(TransformerBlock):
    """gate(x, relu(attention(norm(x)))), then gate(x, relu(feedforward(norm(x)))) (equations 8 and 9)."""

    def __init__(self, cfg: GTrXLConfig) -> None:
        super().__init__(cfg)
        self.gates: Any = nn.ModuleList(Gate(cfg.hidden_dim, cfg.gate_bias) for _ in range(2))

    def forward(self, x_SBH: Tensor, x_TBH: Tensor, window: AttentionWindow) -> Tensor:
        """The residual stream after the block."""
        x_TBH = self.gates[0](x_TBH, torch.relu(self.attention(self.norm(x_SBH), window)))
        return self.gates[1](x_TBH, torch.relu(self.feedforward(x_TBH)))


@MEMORY.register("gtrxl")
class GTrXL(TransformerCore):
    """Gated blocks."""

    Config, Block = GTrXLConfig, GatedBlock


class Gate(nn.Module):
    """r, z = sigmoid(W y + U x), z lowered by the bias; h = tanh(W y + U (r x)); (1 - z) x + z h (section 3.2)."""

    def __init__(self, width: int, bias: float) -> None:
        super().__init__()
        self.new = nn.Linear(width, 3 * width, bias=False)
        self.old = nn.Linear(width, 2 * width, bias=False)
        self.reset = nn.Linear(width, width, bias=False)
        self.bias = nn.Parameter(torch.full((width,), bias))
        for layer in (self.new, self.old, self.reset):
            for block in layer.weight.data.split(width):
                nn.init.xavier_uniform_(block)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The residual stream x joined with y."""
        width = x.shape[-1]
        gates_y, candidate = self.new(y).split([2 * width, width], -1)
        r, z = (gates_y + self.old(x)).chunk(2, -1)
        h = torch.tanh(candidate + self.reset(torch.sigmoid(r) * x))
        return torch.lerp(x, h, torch.sigmoid(z - self.bias))
