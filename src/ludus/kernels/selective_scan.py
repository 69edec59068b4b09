"""Linear recurrences with episode resets, as functions with a derivative.

On the CPU they run step by step in numpy, in cache, with hand-written backward passes; elsewhere by doubling, in log(T)
operations over the whole sequence. A decay of exactly 0 cuts a sequence: no value and no gradient passes it.
Shapes: T time, B batch, E channels, N states per channel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ludus.kernels import Kept, plain
from ludus.types import Array

SPAN = 32
"""Steps whose states the backward pass of `selective_scan` rebuilds at once; only their first one is kept."""


def linear_scan(decay_T: Tensor, input_T: Tensor, start: Tensor) -> Tensor:
    """h[t] = decay[t] * h[t-1] + input[t] for all t; decay, input and result [T, ...], start [...]."""
    if decay_T.device.type == "cpu" and not plain():
        return _LinearScan.apply(decay_T, input_T, start)
    return _doubling(decay_T, input_T, start)


def _doubling(decay: Tensor, value: Tensor, start: Tensor) -> Tensor:
    value = torch.cat([(value[0] + decay[0] * start).unsqueeze(0), value[1:]])
    shift = 1
    while shift < len(value):
        value = torch.cat([value[:shift], value[shift:] + decay[shift:] * value[:-shift]])
        decay = torch.cat([decay[:shift], decay[shift:] * decay[:-shift]])
        shift *= 2
    return value


class _LinearScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Kept, decay: Tensor, value: Tensor, start: Tensor) -> Tensor:
        """All states h[t]."""
        a, b = decay.detach().numpy(), value.detach().numpy()
        h = np.empty_like(b)
        previous = start.detach().numpy()
        for a_t, b_t, h_t in zip(a, b, h, strict=True):
            np.multiply(a_t, previous, out=h_t)
            h_t += b_t
            previous = h_t
        result = torch.from_numpy(h)
        ctx.save_for_backward(decay, start, result)
        return result

    @staticmethod
    def backward(ctx: Kept, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same recurrence backwards in time."""
        decay, start, result = ctx.saved_tensors
        a = decay.numpy()
        d = grads[0].numpy().copy()
        for t in range(len(d) - 2, -1, -1):
            d[t] += a[t + 1] * d[t + 1]
        before = torch.cat([start.unsqueeze(0), result[:-1]])
        d_value = torch.from_numpy(d)
        return d_value * before, d_value, decay[0] * d_value[0]


def selective_scan(
    x_TBE: Tensor, delta_TBE: Tensor, A_NE: Tensor, B_TBN: Tensor, C_TBN: Tensor, keep_TB: Tensor, start_BNE: Tensor
) -> tuple[Tensor, Tensor]:
    """Mamba's recurrence (Gu & Dao 2023, equation 2), (y_TBE, state after the last step).

    h[t] = keep[t] exp(delta[t] A) h[t-1] + delta[t] B[t] x[t] and y[t] = C[t] h[t]; keep is False where an episode
    starts.
    """
    if x_TBE.device.type == "cpu" and not plain():
        return _SelectiveScan.apply(x_TBE, delta_TBE, A_NE, B_TBN, C_TBN, keep_TB, start_BNE)
    decay = torch.exp(delta_TBE.unsqueeze(2) * A_NE) * keep_TB[..., None, None]
    value = (delta_TBE * x_TBE).unsqueeze(2) * B_TBN.unsqueeze(-1)
    h_TBNE = linear_scan(decay, value, start_BNE)
    return torch.einsum("tbn,tbne->tbe", C_TBN, h_TBNE), h_TBNE[-1]


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Kept, x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, keep: Tensor, start: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Step by step; of the states only the first of each span is kept."""
        ctx.save_for_backward(delta, A, B, C, x)
        resets, starts = _resets(keep.numpy()), []
        dt, a, b, c = (tensor.detach().numpy() for tensor in (delta, A, B, C))
        fed = (delta * x).numpy()
        h = start.detach().numpy().copy()
        y = np.empty_like(fed)
        decay, entry = np.empty_like(h), np.empty_like(h)
        for t in range(len(y)):
            if t % SPAN == 0:
                starts.append(h.copy())
            h *= _decay(dt[t], a, resets[t], out=decay)
            h += np.multiply(fed[t][:, None], b[t][..., None], out=entry)
            np.matmul(c[t][:, None], h, out=y[t][:, None])
        ctx.arrays = resets, starts
        return torch.from_numpy(y), torch.from_numpy(h)

    @staticmethod
    def backward(ctx: Kept, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Backwards span by span, on states that are computed again."""
        delta, A, B, C, x = ctx.saved_tensors
        resets, starts = ctx.arrays
        dt, a, b, c, dy = (tensor.numpy() for tensor in (delta, A, B, C, grads[0]))
        fed = (delta * x).numpy()
        d_fed, d_rate, d_b, d_c = np.empty_like(fed), np.empty_like(fed), np.empty_like(b), np.empty_like(c)
        d_a, carry = np.zeros_like(a), grads[1].numpy().copy()
        slope, product = np.empty_like(carry), np.empty_like(carry)
        for span in range(len(starts) - 1, -1, -1):
            begin, here = span * SPAN, slice(span * SPAN, (span + 1) * SPAN)
            decays, states = _rebuild(starts[span], resets[here], dt[here], b[here], fed[here], a)
            for t in range(begin + len(decays) - 1, begin - 1, -1):
                decay, before, state = decays[t - begin], states[t - begin], states[t - begin + 1]
                carry += np.multiply(c[t][..., None], dy[t][:, None], out=product)  # now the gradient of h[t]
                np.matmul(state, dy[t][..., None], out=d_c[t][..., None])
                np.matmul(carry, fed[t][..., None], out=d_b[t][..., None])
                np.matmul(b[t][:, None], carry, out=d_fed[t][:, None])
                carry *= decay
                np.multiply(carry, before, out=slope)  # gradient of the exponent delta A
                np.multiply(slope, a, out=product).sum(1, out=d_rate[t])
                d_a += np.einsum("bne,be->ne", slope, dt[t])
        d_fed_T, d_rate_T = torch.from_numpy(d_fed), torch.from_numpy(d_rate)
        d_delta = d_rate_T + d_fed_T * x
        back = (torch.from_numpy(array) for array in (d_a, d_b, d_c))
        return d_fed_T * delta, d_delta, *back, None, torch.from_numpy(carry)


def _resets(keep_TB: Array) -> list[Array | None]:
    """Per step the batch rows that begin an episode, or none."""
    return [None if row.all() else np.flatnonzero(~row) for row in keep_TB]


def _decay(dt_BE: Array, a_NE: Array, reset: Array | None, out: Array) -> Array:
    np.multiply(dt_BE[:, None], a_NE, out=out)
    np.exp(out, out=out)
    if reset is not None:
        out[reset] = 0.0
    return out


def _rebuild(
    start: Array, resets: Sequence[Array | None], dt: Array, b: Array, fed: Array, a: Array
) -> tuple[Array, Array]:
    """Decays and states of a span of steps from the state before it, which is states[0]."""
    decays, states = np.empty((len(dt), *start.shape), start.dtype), np.empty((len(dt) + 1, *start.shape), start.dtype)
    states[0] = start
    for t in range(len(dt)):
        np.multiply(_decay(dt[t], a, resets[t], out=decays[t]), states[t], out=states[t + 1])
        states[t + 1] += fed[t][:, None] * b[t][..., None]
    return decays, states
