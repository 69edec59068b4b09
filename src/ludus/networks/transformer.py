"""What transformer cores share: blocks over a sliding memory of the open episode.

The state holds the inputs of every block at the last `memory_length` steps, and how many steps the open episode has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, Self

import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn

from ludus.config.model import Model
from ludus.networks.attention import Attention, AttentionWindow, sinusoids
from ludus.networks.encoders.mlp import linear
from ludus.networks.memory import MemoryCore
from ludus.types import Tree

POSITION_STD = 0.1
"""Initial deviation of learned positions: less than that of the inputs they are added to."""


class TransformerConfig(Model):
    """Blocks of attention and feedforward layers."""

    hidden_dim: PositiveInt = 64
    """Width of the residual stream."""
    num_layers: PositiveInt = 1
    """Blocks."""
    num_heads: PositiveInt = 4
    """Attention heads; must divide `hidden_dim`."""
    memory_length: PositiveInt = 64
    """Steps of the open episode that every step sees besides itself, per layer."""
    feedforward_dim: PositiveInt | None = None
    """Width of the feedforward layers; the default is twice `hidden_dim`."""
    positions: Literal["relative", "absolute", "learned", "none"] = "relative"
    """Position encoding: by the distance of two steps (Transformer-XL), by sinusoids or learned vectors of the position
    in the episode that are added to the input, or none."""
    position_limit: PositiveInt = 512
    """Number of learned positions; all later steps share the last. Only for `positions: learned`."""

    @model_validator(mode="after")
    def whole_heads(self) -> Self:
        """Refuse heads that do not divide the width."""
        if self.hidden_dim % self.num_heads:
            raise ValueError(f"num_heads {self.num_heads} does not divide hidden_dim {self.hidden_dim}")
        return self


class TransformerBlock(nn.Module, ABC):
    """Attention and feedforward layers; a core says how each is joined to the residual stream."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        width, inner = cfg.hidden_dim, cfg.feedforward_dim or 2 * cfg.hidden_dim
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, cfg.num_heads, cfg.memory_length, distances=cfg.positions == "relative")
        self.feedforward = nn.Sequential(
            nn.LayerNorm(width), linear(width, inner), nn.ReLU(), linear(inner, width, 1.0)
        )

    @abstractmethod
    def forward(self, x_SBH: Tensor, x_TBH: Tensor, window: AttentionWindow) -> Tensor:
        """The stream after the block; S = M + T are the steps it may look at."""


class TransformerCore(MemoryCore):
    """Input projection, blocks, norm."""

    Block: type[TransformerBlock]

    def __init__(self, cfg: TransformerConfig, in_dim: int) -> None:
        super().__init__()
        self.out_dim, self.memory = cfg.hidden_dim, cfg.memory_length
        self.project = linear(in_dim, cfg.hidden_dim, gain=1.0)
        self.blocks: Any = nn.ModuleList(self.Block(cfg) for _ in range(cfg.num_layers))
        self.norm = nn.LayerNorm(cfg.hidden_dim)
        self.positions, self.places = cfg.positions, None
        if cfg.positions == "learned":
            self.places = nn.Parameter(torch.empty(cfg.position_limit, cfg.hidden_dim).normal_(std=POSITION_STD))

    def initial_state(self, batch: int) -> Tree:
        """(inputs of every block at the last steps [B, M, H], length of the open episode [B])."""
        weight = self.project.weight
        memory = tuple(weight.new_zeros(batch, self.memory, self.out_dim) for _ in self.blocks)
        return memory, torch.zeros(batch, dtype=torch.long, device=weight.device)

    def forward(self, x_TBD: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """Outputs [T, B, H] and the state after the last step."""
        memory, length_B = state
        window = AttentionWindow(first_TB, length_B, self.memory)
        x_TBH, kept = self._placed(self.project(x_TBD), window), []
        for block, past_BMH in zip(self.blocks, memory, strict=True):
            x_SBH = torch.cat([past_BMH.transpose(0, 1), x_TBH])
            kept.append(x_SBH[len(x_TBH) :].transpose(0, 1))
            x_TBH = block(x_SBH, x_TBH, window)
        return self.norm(x_TBH), (tuple(kept), window.length_after())

    def _placed(self, x_TBH: Tensor, window: AttentionWindow) -> Tensor:
        """Inputs with their position in the episode added, as `positions` says."""
        if self.places is not None:
            return x_TBH + self.places[window.positions().clamp(max=len(self.places) - 1)]
        if self.positions == "absolute":
            return x_TBH + sinusoids(window.positions(), self.out_dim).to(x_TBH.dtype)
        return x_TBH
