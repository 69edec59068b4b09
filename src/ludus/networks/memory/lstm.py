"""Long short-term memory (Hochreiter & Schmidhuber 1997) over whole sequences with episode resets.

On the CPU `kernels.lstm_scan` runs the recurrence. On an accelerator one fused call does: before every episode start it
gets an extra step at which a flag with weight -1e4 closes the input and forget gates, so that cell and output become 0
exactly; a second flag keeps the cell unchanged over padding.
"""

from __future__ import annotations

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn.functional import linear

from ludus.config.model import Model
from ludus.kernels.lstm_scan import LSTMScan
from ludus.networks.memory import MemoryCore
from ludus.registry import MEMORY
from ludus.types import Tree

SHUT = -1e4  # sigmoid(-1e4) is exactly 0 in float32, sigmoid(1e4) exactly 1


class LSTMConfig(Model):
    """A single LSTM layer."""

    hidden_dim: PositiveInt = 64
    """Units."""
    horizon: PositiveInt = 1
    """Steps over which it has to remember: forget gates begin with time constants up to it. 1 leaves the bias 0, which
    halves the cell at every step, for tasks with short memories."""


@MEMORY.register("lstm")
class LSTM(MemoryCore):
    """One layer; orthogonal weights, zero bias or that of Tallec & Ollivier 2018 (arXiv:1804.11188)."""

    Config = LSTMConfig

    def __init__(self, cfg: LSTMConfig, in_dim: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(in_dim, cfg.hidden_dim)
        self.out_dim = cfg.hidden_dim
        for name, parameter in self.cell.named_parameters():
            nn.init.zeros_(parameter) if name.startswith("bias") else nn.init.orthogonal_(parameter)
        if cfg.horizon > 2:  # torch orders the gates input, forget, cell, output
            to_input, to_forget = self.cell.bias_ih.data[: 2 * self.out_dim].chunk(2)
            to_forget.uniform_(1.0, cfg.horizon - 1.0).log_()
            to_input.copy_(-to_forget)

    def initial_state(self, batch: int) -> Tree:
        """(outputs [B, H], cells [B, H])."""
        return tuple(torch.zeros(2, batch, self.out_dim, device=self.cell.weight_hh.device).unbind())

    def forward(self, x_TBD: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """Outputs [T, B, H] and the state after the last step."""
        if len(x_TBD) == 1:
            h_BH, c_BH = self.cell(x_TBD[0], tuple(leaf * ~first_TB[0].unsqueeze(-1) for leaf in state))
            return h_BH.unsqueeze(0), (h_BH, c_BH)
        h_BH, c_BH = state
        run = self.scanned if x_TBD.device.type == "cpu" else self.fused
        y_TBH, c_BH = run(x_TBD, h_BH, c_BH, first_TB)
        return y_TBH, (y_TBH[-1], c_BH)

    def scanned(self, x_TBD: Tensor, h_BH: Tensor, c_BH: Tensor, first_TB: Tensor) -> tuple[Tensor, Tensor]:
        """(outputs, last cell) by the scan; with doubled weights tanh(a) of the candidate is 2 sigmoid(2 a) - 1."""
        cell = self.cell
        double = torch.ones_like(cell.bias_hh)
        double[2 * self.out_dim : 3 * self.out_dim] = 2.0
        gates_TBG = linear(x_TBD, cell.weight_ih * double[:, None], (cell.bias_ih + cell.bias_hh) * double)
        return LSTMScan.apply(gates_TBG, h_BH, c_BH, first_TB, cell.weight_hh * double[:, None])

    def fused(self, x_TBD: Tensor, h_BH: Tensor, c_BH: Tensor, first_TB: Tensor) -> tuple[Tensor, Tensor]:
        """(outputs, last cell) in one library call, with an extra step before every episode start."""
        T, B, D = x_TBD.shape
        cell, device = self.cell, x_TBD.device
        row_TB = torch.arange(T, device=device).unsqueeze(1) + first_TB.long().cumsum(0)
        column_TB = torch.arange(B, device=device).expand(T, B)
        inputs = x_TBD.new_zeros(T + int(first_TB.sum(0).max()), B, D + 2)
        behind = torch.arange(len(inputs), device=device).unsqueeze(1) > row_TB[-1]
        inputs[..., -2], inputs[..., -1] = ~behind, behind  # every step is a reset, or padding behind the last one ...
        real = torch.cat([x_TBD, x_TBD.new_zeros(T, B, 2)], -1)
        inputs = inputs.index_put((row_TB, column_TB), real)  # ... unless it is a real one
        flags = torch.tensor([[SHUT, SHUT], [SHUT, -SHUT], [0.0, 0.0], [0.0, 0.0]], device=device)
        weight_ih = torch.cat([cell.weight_ih, flags.repeat_interleave(self.out_dim, 0).to(x_TBD.dtype)], 1)
        weights = [weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
        start = (h_BH.unsqueeze(0), c_BH.unsqueeze(0))
        y, _, c = torch._VF.lstm(inputs, start, weights, True, 1, 0.0, False, False, False)
        return y[row_TB, column_TB], c[0]
