"""Gated Transformer-XL (Parisotto et al. 2020, arXiv:1910.06764): GRU gates in place of residual connections.

The state holds the inputs of every layer at the last `memory_length` steps, and how many of them belong to the open
episode. A bias keeps the gates nearly shut at the start: the network begins as its own input projection.
"""

from __future__ import annotations

import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn

from ludus.config.model import Model
from ludus.networks.attention import RelativeAttention, Window
from ludus.networks.layers import linear
from ludus.networks.memory import MemoryCore
from ludus.registry import MEMORY
from ludus.types import Tree


class GTrXLConfig(Model):
    """Gated Transformer-XL blocks."""

    hidden_dim: PositiveInt = 64
    """Width of the residual stream."""
    num_layers: PositiveInt = 1
    """Blocks."""
    num_heads: PositiveInt = 4
    """Attention heads; must divide `hidden_dim`."""
    memory_length: PositiveInt = 64
    """Steps of the open episode that every step sees besides itself, per layer."""
    feedforward_dim: PositiveInt | None = None
    """Width inside the second half of a block; the default is twice `hidden_dim`."""
    gate_bias: float = 2.0
    """How far the gates are shut at the start."""

    @model_validator(mode="after")
    def whole_heads(self) -> GTrXLConfig:
        if self.hidden_dim % self.num_heads:
            raise ValueError(f"num_heads {self.num_heads} does not divide hidden_dim {self.hidden_dim}")
        return self


@MEMORY.register("gtrxl")
class GTrXL(MemoryCore):
    """Input projection, gated blocks, norm."""

    Config = GTrXLConfig

    def __init__(self, cfg: GTrXLConfig, in_dim: int) -> None:
        super().__init__()
        self.out_dim, self.memory = cfg.hidden_dim, cfg.memory_length
        self.project = linear(in_dim, cfg.hidden_dim, gain=1.0)
        self.blocks = nn.ModuleList(_Block(cfg) for _ in range(cfg.num_layers))
        self.norm = nn.LayerNorm(cfg.hidden_dim)

    def initial_state(self, batch: int) -> Tree:
        weight = self.project.weight
        memory = tuple(weight.new_zeros(batch, self.memory, self.out_dim) for _ in self.blocks)
        return memory, torch.zeros(batch, dtype=torch.long, device=weight.device)

    def forward(self, x_TBD: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        memory, length_B = state
        window = Window(first_TB, length_B, self.memory)
        x_TBH, kept = self.project(x_TBD), []
        for block, past_BMH in zip(self.blocks, memory, strict=True):
            x_SBH = torch.cat([past_BMH.transpose(0, 1), x_TBH])
            kept.append(x_SBH[len(x_TBH) :].transpose(0, 1))
            x_TBH = block(x_SBH, x_TBH, window)
        return self.norm(x_TBH), (tuple(kept), window.length_after(first_TB, length_B))


class _Block(nn.Module):
    """gate(x, relu(attention(norm(x)))), then gate(x, relu(feedforward(norm(x)))) (equations 8 and 9)."""

    def __init__(self, cfg: GTrXLConfig) -> None:
        super().__init__()
        width, inner = cfg.hidden_dim, cfg.feedforward_dim or 2 * cfg.hidden_dim
        self.norm = nn.LayerNorm(width)
        self.attention = RelativeAttention(width, cfg.num_heads, cfg.memory_length)
        self.feedforward = nn.Sequential(
            nn.LayerNorm(width), linear(width, inner), nn.ReLU(), linear(inner, width, 1.0)
        )
        self.gates = nn.ModuleList(_Gate(width, cfg.gate_bias) for _ in range(2))

    def forward(self, x_SBH: Tensor, x_TBH: Tensor, window: Window) -> Tensor:
        x_TBH = self.gates[0](x_TBH, torch.relu(self.attention(self.norm(x_SBH), window)))
        return self.gates[1](x_TBH, torch.relu(self.feedforward(x_TBH)))


class _Gate(nn.Module):
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
        width = x.shape[-1]
        gates_y, candidate = self.new(y).split([2 * width, width], -1)
        r, z = (gates_y + self.old(x)).chunk(2, -1)
        h = torch.tanh(candidate + self.reset(torch.sigmoid(r) * x))
        return torch.lerp(x, h, torch.sigmoid(z - self.bias))
