"""Causal depthwise convolution over sequences that contain episode starts.

Shapes: T time, B batch, E channels, K taps, R the steps that lie less than K after an episode start or the call's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SPAN = 32
"""Steps taken at once: they stay in cache."""


def causal_convolution(
    x_TBE: Tensor, weight_EK: Tensor, bias_E: Tensor, first_TB: Tensor, past_BKE: Tensor
) -> tuple[Tensor, Tensor]:
    """(y_TBE, the K - 1 newest inputs for the next call); inputs of an earlier episode count as zero."""
    taps = weight_EK.shape[1]
    lost_KTB = _lost(first_TB, taps)
    y_TBE = _Convolution.apply(x_TBE, past_BKE.transpose(0, 1), weight_EK.t().contiguous(), bias_E, lost_KTB)
    newest = torch.cat([past_BKE.transpose(0, 1), x_TBE[-taps:]])[-taps + 1 :] if taps > 1 else x_TBE[:0]
    return y_TBE, (newest * ~lost_KTB[: taps - 1, -1].flip(0).unsqueeze(-1)).transpose(0, 1)


def _lost(first_TB: Tensor, taps: int) -> Tensor:
    """[K, T, B]: whether an episode began within a lag, so that the input that long ago belongs to another one."""
    lost = [torch.zeros_like(first_TB)]
    for lag in range(1, taps):
        reaches = torch.zeros_like(first_TB)
        reaches[lag - 1 :] = first_TB[: max(0, len(first_TB) - lag + 1)]
        lost.append(lost[-1] | reaches)
    return torch.stack(lost)


class _Convolution(torch.autograd.Function):
    """Shifted products over everything; the few steps near a start are computed apart and put over the result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, past: Tensor, weight: Tensor, bias: Tensor, lost: Tensor) -> Tensor:
        by_lag, taps = weight.flip(0), len(weight)
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        for begin in range(0, len(x), SPAN):
            end = min(len(x), begin + SPAN)
            torch.addcmul(bias, x[begin:end], by_lag[0], out=y[begin:end])
            for lag in range(1, min(taps, end)):
                start = max(begin, lag)
                y[start:end].addcmul_(x[start - lag : end - lag], by_lag[lag])
        near = lost[-1].clone()
        near[: taps - 1] = True
        t, b = near.nonzero(as_tuple=True)
        source = t - torch.arange(taps, device=x.device).unsqueeze(1)  # [K, R]; before the call where negative
        valid = ~lost[:, t, b]
        late, early = (mask.to(x.dtype).unsqueeze(-1) for mask in (valid & (source >= 0), valid & (source < 0)))
        now, before = source.clamp(min=0), (source + taps - 1).clamp(min=0, max=max(0, taps - 2))
        inputs = x[now, b] * late
        if len(past):
            inputs += past[before, b] * early
        y[t, b] = torch.addcmul(bias, inputs[0], by_lag[0]) + (inputs[1:] * by_lag[1:, None]).sum(0)
        rows, old_rows = now * x.shape[1] + b, before * x.shape[1] + b
        ctx.save_for_backward(x, by_lag, t, b, rows, old_rows, late, early, inputs)
        ctx.past = past.shape
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, by_lag, t, b, rows, old_rows, late, early, inputs = ctx.saved_tensors
        dy = grads[0].clone()
        d_bias = dy.sum((0, 1))
        near = dy[t, b]
        dy[t, b] = 0.0
        d_weight = (inputs * near).sum(1)
        d_x = torch.zeros_like(dy)
        for begin in range(0, len(dy), SPAN):
            end = min(len(dy), begin + SPAN)
            for lag in range(min(len(by_lag), end)):
                start = max(begin, lag)
                then = slice(start - lag, end - lag)
                d_x[then].addcmul_(dy[start:end], by_lag[lag])
                d_weight[lag] += (dy[start:end] * x[then]).sum((0, 1))
        d_inputs = near * by_lag.unsqueeze(1)  # [K, R, E]
        d_x.view(-1, x.shape[-1]).index_add_(0, rows.flatten(), (d_inputs * late).flatten(0, 1))
        d_past = x.new_zeros(ctx.past)
        if len(d_past):
            d_past.view(-1, x.shape[-1]).index_add_(0, old_rows.flatten(), (d_inputs * early).flatten(0, 1))
        return d_x, d_past, d_weight.flip(0), d_bias, None
