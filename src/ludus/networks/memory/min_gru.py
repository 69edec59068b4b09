"""minGRU (Feng et al. 2024, arXiv:2410.01201): gates that see only the input, so that the recurrence is linear.

    z = sigmoid(W_z x), n = W_n x, h[t] = (1 - z) h[t-1] + z n

A reset sets the factor of h[t-1] to 0. Layers are stacked as in the paper: norm, minGRU, residual connection.
"""

from __future__ import annotations

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from ludus.kernels.selective_scan import linear_scan
from ludus.networks.encoders.mlp import linear
from ludus.networks.residual import ResidualConfig, ResidualCore
from ludus.registry import MEMORY
from ludus.types import Tree


class MinGRUConfig(ResidualConfig):
    """Layers of minGRU."""

    num_layers: PositiveInt = 2
    """Layers; gates of the first cannot depend on the past, so two are usual."""


class MinGRULayer(nn.Module):
    """One linear recurrence."""

    def __init__(self, cfg: MinGRUConfig) -> None:
        super().__init__()
        self.gates = linear(cfg.hidden_dim, 2 * cfg.hidden_dim, gain=1.0)

    def initial_state(self, batch: int) -> Tree:
        """[B, H]."""
        return self.gates.weight.new_zeros(batch, self.gates.in_features)

    def forward(self, x_TBH: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """Outputs [T, B, H] and the state after the last step."""
        z_TBH, n_TBH = self.gates(x_TBH).chunk(2, -1)
        z_TBH = torch.sigmoid(z_TBH)
        h_TBH = linear_scan((1.0 - z_TBH) * ~first_TB.unsqueeze(-1), z_TBH * n_TBH, state)
        return h_TBH, h_TBH[-1]


@MEMORY.register("min_gru")
class MinGRU(ResidualCore):
    """Blocks around the linear recurrence."""

    Config, Mixer = MinGRUConfig, MinGRULayer
