"""Gated recurrent unit (Cho et al. 2014) over whole sequences with episode resets.

On the CPU `kernels.gru_scan` runs the recurrence. On an accelerator one fused call does: before every episode start it
gets an extra step at which a flag with weight -1e4 closes the reset and update gates and the input bias (which is an
input column) is zero, so that the state becomes tanh(0) = 0 exactly, whatever it was.
"""

from __future__ import annotations

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from ludus.config.model import Model
from ludus.kernels.gru_scan import GRUScan
from ludus.networks.memory import MemoryCore
from ludus.registry import MEMORY
from ludus.types import Tree

SHUT = -1e4  # sigmoid(-1e4) is exactly 0 in float32


class GRUConfig(Model):
    """A single GRU layer."""

    hidden_dim: PositiveInt = 64
    """Units."""
    horizon: PositiveInt = 1
    """Steps over which it has to remember: update gates begin with time constants up to it. 1 leaves the bias 0, which
    halves the state at every step, for tasks with short memories."""


@MEMORY.register("gru")
class GRU(MemoryCore):
    """One layer; orthogonal weights, zero bias or that of Tallec & Ollivier 2018 (arXiv:1804.11188)."""

    Config = GRUConfig

    def __init__(self, cfg: GRUConfig, in_dim: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(in_dim, cfg.hidden_dim)
        self.out_dim = cfg.hidden_dim
        for name, parameter in self.cell.named_parameters():
            nn.init.zeros_(parameter) if name.startswith("bias") else nn.init.orthogonal_(parameter)
        if cfg.horizon > 2:
            update = self.cell.bias_ih.data[self.out_dim : 2 * self.out_dim]
            update.uniform_(1.0, cfg.horizon - 1.0).log_()

    def initial_state(self, batch: int) -> Tree:
        """(hidden units [B, H],)."""
        return (torch.zeros(batch, self.out_dim, device=self.cell.weight_hh.device),)

    def forward(self, x_TBD: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """Outputs [T, B, H] and the state after the last step."""
        (h_BH,) = state
        if len(x_TBD) == 1:
            h_BH = self.cell(x_TBD[0], h_BH * ~first_TB[0].unsqueeze(-1))
            return h_BH.unsqueeze(0), (h_BH,)
        if x_TBD.device.type == "cpu":
            gates_TBG = torch.nn.functional.linear(x_TBD, self.cell.weight_ih, self.cell.bias_ih)
            y_TBH = GRUScan.apply(gates_TBG, h_BH, first_TB, self.cell.weight_hh, self.cell.bias_hh)
        else:
            y_TBH = self.fused(x_TBD, h_BH, first_TB)
        return y_TBH, (y_TBH[-1],)

    def fused(self, x_TBD: Tensor, h_BH: Tensor, first_TB: Tensor) -> Tensor:
        """The whole sequence in one library call, with an extra step before every episode start."""
        T, B, D = x_TBD.shape
        cell, device = self.cell, x_TBD.device
        row_TB = torch.arange(T, device=device).unsqueeze(1) + first_TB.long().cumsum(0)
        column_TB = torch.arange(B, device=device).expand(T, B)
        inputs = x_TBD.new_zeros(T + int(first_TB.sum(0).max()), B, D + 2)
        inputs[..., -1] = 1.0  # every step is a reset ...
        one, zero = x_TBD.new_ones(T, B, 1), x_TBD.new_zeros(T, B, 1)
        inputs = inputs.index_put((row_TB, column_TB), torch.cat([x_TBD, one, zero], -1))  # ... unless it is a real one
        shut = torch.tensor([SHUT, SHUT, 0.0], device=device).repeat_interleave(self.out_dim).unsqueeze(1)
        weight_ih = torch.cat([cell.weight_ih, cell.bias_ih.unsqueeze(1), shut], 1)
        weights = [weight_ih, cell.weight_hh, torch.zeros_like(cell.bias_ih), cell.bias_hh]
        y, _ = torch._VF.gru(inputs, h_BH.unsqueeze(0), weights, True, 1, 0.0, False, False, False)
        return y[row_TB, column_TB]
