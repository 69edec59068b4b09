"""minGRU (Feng et al. 2024, arXiv:2410.01201): gates that see only the input, so that the recurrence is linear.

    z = sigmoid(W_z x), n = W_n x, h[t] = (1 - z) h[t-1] + z n

A reset sets the factor of h[t-1] to 0. Layers are stacked as in the paper: norm, minGRU, residual connection.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from ludus.config.model import Model
from ludus.kernels.selective_scan import linear_scan
from ludus.networks.layers import RMSNorm, linear
from ludus.networks.memory import MemoryCore
from ludus.registry import MEMORY
from ludus.types import Tree


class MinGRUConfig(Model):
    """Layers of minGRU."""

    hidden_dim: PositiveInt = 64
    """Units of each layer."""
    num_layers: PositiveInt = 2
    """Layers; the state of one never depends on its own past other than by a gated mean, so two are usual."""


@MEMORY.register("min_gru")
class MinGRU(MemoryCore):
    """Input projection, residual minGRU layers, norm."""

    Config = MinGRUConfig

    def __init__(self, cfg: MinGRUConfig, in_dim: int) -> None:
        super().__init__()
        self.out_dim = width = cfg.hidden_dim
        self.project = linear(in_dim, width, gain=1.0)
        self.norms: Any = nn.ModuleList(RMSNorm(width) for _ in range(cfg.num_layers))
        self.gates: Any = nn.ModuleList(linear(width, 2 * width, gain=1.0) for _ in range(cfg.num_layers))
        self.norm = RMSNorm(width)

    def initial_state(self, batch: int) -> Tree:
        device = self.project.weight.device
        return tuple(torch.zeros(batch, self.out_dim, device=device) for _ in self.gates)

    def forward(self, x_TBD: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        x_TBH, keep = self.project(x_TBD), ~first_TB.unsqueeze(-1)
        last = []
        for norm, gates, start_BH in zip(self.norms, self.gates, state, strict=True):
            z_TBH, n_TBH = gates(norm(x_TBH)).chunk(2, -1)
            z_TBH = torch.sigmoid(z_TBH)
            h_TBH = linear_scan((1.0 - z_TBH) * keep, z_TBH * n_TBH, start_BH)
            last.append(h_TBH[-1])
            x_TBH = x_TBH + h_TBH
        return self.norm(x_TBH), tuple(last)
