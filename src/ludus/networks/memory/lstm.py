"""Long short-term memory (Hochreiter & Schmidhuber 1997) over whole sequences with episode resets.

On the CPU a scan of our own runs the recurrence in numpy, over sequences cut at episode starts and with a hand-written
backward pass. On an accelerator one fused call does it: a step is inserted before every episode start, at which a flag
with weight -1e4 closes the input and forget gates, so that cell and output become 0 exactly; a second flag holds the
cell over padding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn.functional import linear

from ludus.config.model import Model
from ludus.kernels.segments import Segments
from ludus.networks.memory import MemoryCore, Step, Take
from ludus.registry import MEMORY
from ludus.types import Array, Tree

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
        return tuple(torch.zeros(2, batch, self.out_dim, device=self.cell.weight_hh.device).unbind())

    def forward(self, x_TBD: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        if len(x_TBD) == 1:
            h_BH, c_BH = self.cell(x_TBD[0], tuple(leaf * ~first_TB[0].unsqueeze(-1) for leaf in state))
            return h_BH.unsqueeze(0), (h_BH, c_BH)
        h_BH, c_BH = state
        run = self.scanned if x_TBD.device.type == "cpu" else self.fused
        y_TBH, c_BH = run(x_TBD, h_BH, c_BH, first_TB)
        return y_TBH, (y_TBH[-1], c_BH)

    def scanned(self, x_TBD: Tensor, h_BH: Tensor, c_BH: Tensor, first_TB: Tensor) -> tuple[Tensor, Tensor]:
        """(outputs, last cell) by the scan; doubled weights of the candidate make its tanh a sigmoid."""
        cell = self.cell
        double = torch.ones_like(cell.bias_hh)
        double[2 * self.out_dim : 3 * self.out_dim] = 2.0
        gates_TBG = linear(x_TBD, cell.weight_ih * double[:, None], (cell.bias_ih + cell.bias_hh) * double)
        return _Scan.apply(gates_TBG, h_BH, c_BH, first_TB, cell.weight_hh * double[:, None])

    def fused(self, x_TBD: Tensor, h_BH: Tensor, c_BH: Tensor, first_TB: Tensor) -> tuple[Tensor, Tensor]:
        """(outputs, last cell) in one library call, reset steps inserted."""
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

    def numpy_step(self, take: Take) -> Step:
        width, cell = self.out_dim, self.cell
        w_x, w_h, b_x, b_h = (take(p) for p in (cell.weight_ih.t(), cell.weight_hh.t(), cell.bias_ih, cell.bias_hh))

        def step(x_BD: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
            h, c = (leaf * ~first_B[:, None] for leaf in state)
            gates = x_BD @ w_x + h @ w_h + b_x + b_h
            g = np.tanh(gates[:, 2 * width : 3 * width])
            gates = 0.5 * np.tanh(0.5 * gates) + 0.5  # sigmoid
            c = gates[:, width : 2 * width] * c + gates[:, :width] * g
            h = gates[:, 3 * width :] * np.tanh(c)
            return h, (h, c)

        return step


class _Scan(torch.autograd.Function):
    """i, f, s, o = sigmoid(x + h' U); c = f c' + i (2 s - 1); h = o tanh(c), over pieces of episodes."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, h: Tensor, c: Tensor, first: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        u_weight = np.ascontiguousarray(weight.detach().numpy().T)
        segments = Segments(first.numpy())
        x = segments.pack(gates.detach().numpy())
        h_start, c_start = (segments.start(leaf.detach().numpy()) for leaf in (h, c))
        R, H = len(x), x.shape[1] // 4
        s = np.empty_like(x)
        activations = torch.from_numpy(s).split(segments.count_K.tolist())  # torch's sigmoid takes half of numpy's time
        cells, tanhs, y = (np.empty((R, H), x.dtype) for _ in range(3))
        h_last, c_last = h_start, c_start
        for now, active in zip(segments.slices, activations, strict=True):
            count = now.stop - now.start
            s_t = np.matmul(h_last[:count], u_weight, out=s[now])
            s_t += x[now]
            torch.sigmoid(active, out=active)
            candidate = 2.0 * s_t[:, 2 * H : 3 * H]
            candidate -= 1.0
            candidate *= s_t[:, :H]
            c_last = np.multiply(s_t[:, H : 2 * H], c_last[:count], out=cells[now])
            c_last += candidate
            h_last = np.multiply(s_t[:, 3 * H :], np.tanh(c_last, out=tanhs[now]), out=y[now])
        ctx.arrays = segments, h_start, c_start, s, cells, tanhs, y
        ctx.save_for_backward(weight)
        return torch.from_numpy(segments.unpack(y)), torch.from_numpy(cells[segments.row_TB[-1]])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        segments, h_start, c_start, s, cells, tanhs, y = ctx.arrays
        (weight,) = ctx.saved_tensors
        u_weight, dy = weight.numpy(), segments.pack(grads[0].numpy())
        T, B, H = grads[0].shape
        # everything that does not depend on the recurrence, for all steps at once
        i, f, g, o = (s[:, n * H : (n + 1) * H] for n in range(4))
        slopes = (s * (1.0 - s)).reshape(T * B, 4, H)
        slopes[:, 0] *= 2.0 * g - 1.0
        slopes[:, 1] *= segments.before(c_start, cells)
        slopes[:, 2] *= 2.0 * i
        slopes[:, 3] *= tanhs
        to_c = o * (1.0 - tanhs * tanhs)
        da = np.empty_like(slopes)
        dh, dc = np.zeros_like(h_start), np.zeros_like(c_start)
        dc[segments.last_B] = grads[1].numpy()
        for now in reversed(segments.slices):
            count = now.stop - now.start
            dh_t, dc_t = dh[:count], dc[:count]
            dh_t += dy[now]
            dc_t += dh_t * to_c[now]
            np.multiply(slopes[now, :3], dc_t[:, None], out=da[now, :3])
            np.multiply(slopes[now, 3], dh_t, out=da[now, 3])
            np.matmul(da[now].reshape(count, 4 * H), u_weight, out=dh_t)
            dc_t *= f[now]
        flat = da.reshape(T * B, 4 * H)
        d_weight = flat.T @ segments.before(h_start, y)
        parts = (segments.unpack(flat), segments.start_gradient(dh), segments.start_gradient(dc), d_weight)
        d_gates, d_h, d_c, d_u = (torch.from_numpy(array) for array in parts)
        return d_gates, d_h, d_c, None, d_u
