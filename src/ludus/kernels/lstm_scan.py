"""The recurrence of an LSTM over whole sequences, in numpy and with a hand-written backward pass.

Shapes: T time, B batch, R rows, H hidden units.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ludus.kernels import Kept
from ludus.kernels.segments import Segments


class LSTMScan(torch.autograd.Function):
    """i, f, s, o = sigmoid(x + h' U); c = f c' + i (2 s - 1); h = o tanh(c), over pieces of episodes."""

    @staticmethod
    def forward(ctx: Kept, gates: Tensor, h: Tensor, c: Tensor, first: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [T, B, H] and the last cell, from gates of the inputs, the state before and recurrent weights."""
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
    def backward(ctx: Kept, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all inputs but `first`."""
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
