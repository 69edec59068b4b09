"""minGRU (Feng et al. 2024, arXiv:2410.01201): gates that see only the input, so that the recurrence is linear.

    z = sigmoid(W_z x), n = W_n x, h[t] = (1 - z) h[t-1] + z n

A reset sets the factor of h[t-1] to 0. Layers are stacked as in the paper: norm, minGRU, residual connection.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from ludus.config.model import Model
from ludus.kernels.normalization import rms_norm_numpy
from ludus.kernels.selective_scan import linear_scan
from ludus.networks.layers import RMSNorm, linear
from ludus.networks.memory import MemoryCore, Step, Take
from ludus.registry import MEMORY
from ludus.types import Array, Tree


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

    def numpy_step(self, take: Take) -> Step:
        project, bias = take(self.project.weight.t()), take(self.project.bias)
        layers = [
            (take(norm.weight), take(gates.weight.t()), take(gates.bias))
            for norm, gates in zip(self.norms, self.gates, strict=True)
        ]
        scale, width = take(self.norm.weight), self.out_dim

        def step(x_BD: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
            x, keep, last = x_BD @ project + bias, ~first_B[:, None], []
            for (weight, gates, gates_bias), h in zip(layers, state, strict=True):
                a = rms_norm_numpy(x, weight) @ gates + gates_bias
                z = 0.5 * np.tanh(0.5 * a[:, :width]) + 0.5
                last.append(h * keep * (1.0 - z) + z * a[:, width:])
                x = x + last[-1]
            return rms_norm_numpy(x, scale), tuple(last)

        return step
