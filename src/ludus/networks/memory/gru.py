"""Gated recurrent unit (Cho et al. 2014) over whole sequences, episode resets included, in one fused call.

A step is inserted before every episode start. A flag input with weight -1e4 on the reset and update gates closes both,
and the input bias is itself an input column that is zero there, so the new state is tanh(0) = 0 exactly: one kernel
handles any pattern of resets, and the sequence grows only by the most resets one environment had.
"""

from __future__ import annotations

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from ludus.config.model import Model
from ludus.networks.memory import MemoryCore
from ludus.registry import MEMORY
from ludus.types import Tree

SHUT = -1e4  # sigmoid(-1e4) is exactly 0 in float32


class GRUConfig(Model):
    """A single GRU layer."""

    hidden_dim: PositiveInt = 64
    """Units."""


@MEMORY.register("gru")
class GRU(MemoryCore):
    """One layer; orthogonal weights, zero bias."""

    Config = GRUConfig

    def __init__(self, cfg: GRUConfig, in_dim: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(in_dim, cfg.hidden_dim)
        self.out_dim = cfg.hidden_dim
        for name, parameter in self.cell.named_parameters():
            nn.init.zeros_(parameter) if name.startswith("bias") else nn.init.orthogonal_(parameter)
        gates = torch.tensor([SHUT, SHUT, 0.0]).repeat_interleave(cfg.hidden_dim).unsqueeze(1)
        self.register_buffer("shut_gates", gates, persistent=False)

    def initial_state(self, batch: int) -> Tree:
        return (torch.zeros(batch, self.out_dim, device=self.cell.weight_hh.device),)

    def forward(self, x_TBD: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        (h_BH,) = state
        if len(x_TBD) == 1:
            h_BH = self.cell(x_TBD[0], h_BH * ~first_TB[0].unsqueeze(-1))
            return h_BH.unsqueeze(0), (h_BH,)
        y_TBH = self._sequence(x_TBD, h_BH, first_TB)
        return y_TBH, (y_TBH[-1],)

    def _sequence(self, x_TBD: Tensor, h_BH: Tensor, first_TB: Tensor) -> Tensor:
        T, B, D = x_TBD.shape
        row_TB = torch.arange(T, device=x_TBD.device).unsqueeze(1) + first_TB.long().cumsum(0)
        column_TB = torch.arange(B, device=x_TBD.device).expand(T, B)
        steps = T + int(first_TB.sum(0).max())
        inputs = x_TBD.new_zeros(steps, B, D + 2)
        inputs[..., -1] = 1.0  # every step is a reset ...
        one, zero = x_TBD.new_ones(T, B, 1), x_TBD.new_zeros(T, B, 1)
        inputs = inputs.index_put((row_TB, column_TB), torch.cat([x_TBD, one, zero], -1))  # ... unless it is a real one
        weight_ih = torch.cat([self.cell.weight_ih, self.cell.bias_ih.unsqueeze(1), self.shut_gates], 1)  # type: ignore[list-item]
        weights = [weight_ih, self.cell.weight_hh, torch.zeros_like(self.cell.bias_ih), self.cell.bias_hh]
        y, _ = torch._VF.gru(inputs, h_BH.unsqueeze(0), weights, True, 1, 0.0, False, False, False)  # type: ignore[attr-defined]
        return y[row_TB, column_TB]
