"""The recurrence of a GRU over whole sequences, in numpy and with a hand-written backward pass.

torch has no fused GRU on the CPU, and its graph of small operations takes ten times as long.
Shapes: T time, B batch, R rows, H hidden units.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ludus.kernels import Kept
from ludus.kernels.segments import Segments


class GRUScan(torch.autograd.Function):
    """h[t] = n + z (h[t-1] - n) with gates r, z and candidate n = tanh(x_n + r u_n), over pieces of episodes."""

    @staticmethod
    def forward(ctx: Kept, gates: Tensor, h: Tensor, first: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Outputs [T, B, H] from gates of the inputs, the state before and the recurrent weights."""
        u_weight, u_bias = np.ascontiguousarray(weight.detach().numpy().T), bias.detach().numpy()
        segments = Segments(first.numpy())
        x = segments.pack(gates.detach().numpy())
        start = segments.start(h.detach().numpy())
        R, H = len(x), x.shape[1] // 3
        y, n, u_n = (np.empty((R, H), x.dtype) for _ in range(3))
        rz = np.empty((R, 2 * H), x.dtype)
        state = start
        for now in segments.slices:
            previous = state[: now.stop - now.start]
            u = previous @ u_weight + u_bias
            u_n[now] = u[:, 2 * H :]
            gate = np.tanh(0.5 * (x[now, : 2 * H] + u[:, : 2 * H]), out=rz[now])  # sigmoid(a) = (1 + tanh(a / 2)) / 2
            gate += 1.0
            gate *= 0.5
            candidate = np.tanh(x[now, 2 * H :] + gate[:, :H] * u_n[now], out=n[now])
            state = np.subtract(previous, candidate, out=y[now])
            state *= gate[:, H:]
            state += candidate
        ctx.arrays = segments, start, y, rz, n, u_n
        ctx.save_for_backward(weight)
        return torch.from_numpy(segments.unpack(y))

    @staticmethod
    def backward(ctx: Kept, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all inputs but `first`."""
        segments, start, y, rz, n, u_n = ctx.arrays
        (weight,) = ctx.saved_tensors
        u_weight = weight.detach().numpy()
        T, B, H = grads[0].shape
        dy, before = segments.pack(grads[0].numpy()), segments.before(start, y)
        r, z = rz[:, :H], rz[:, H:]
        # everything that does not depend on the recurrence, for all steps at once
        to_n = (1.0 - z) * (1.0 - n * n)
        slopes = np.stack([to_n * u_n * r * (1.0 - r), (before - n) * z * (1.0 - z), to_n * r], 1)  # [R, 3, H]
        dh = np.empty_like(dy)
        du = np.empty_like(slopes)
        carry = np.zeros_like(start)
        for now in reversed(segments.slices):
            count = now.stop - now.start
            total = np.add(dy[now], carry[:count], out=dh[now])
            np.multiply(slopes[now], total[:, None], out=du[now])
            back = np.matmul(du[now].reshape(count, 3 * H), u_weight, out=carry[:count])
            back += total * z[now]
        flat = du.reshape(T * B, 3 * H)
        dx = du.copy()
        dx[:, 2] = dh * to_n
        d_weight = flat.T @ before
        d_gates = segments.unpack(dx.reshape(T * B, 3 * H))
        parts = (d_gates, segments.start_gradient(carry), d_weight, flat.sum(0))
        d_x, d_h, d_w, d_b = (torch.from_numpy(array) for array in parts)
        return d_x, d_h, None, d_w, d_b
