"""Causal depthwise convolution and SiLU over sequences that contain episode starts.

Shapes: T time, B batch, E channels, K taps.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import silu

from ludus.kernels import Kept, plain

SPAN = 32
"""Steps taken at once: they stay in cache."""


def silu_convolution(
    x_TBE: Tensor, weight_EK: Tensor, bias_E: Tensor, first_TB: Tensor, past_BKE: Tensor
) -> tuple[Tensor, Tensor]:
    """(y_TBE after SiLU, the K - 1 newest inputs for the next call); inputs of an earlier episode count as zero."""
    if plain():
        return _one_step(x_TBE, weight_EK, bias_E, first_TB, past_BKE)
    taps = weight_EK.shape[1]
    lost_KTB = _lost(first_TB, taps)
    y_TBE = _Convolution.apply(x_TBE, past_BKE.transpose(0, 1), weight_EK.t().contiguous(), bias_E, lost_KTB)
    newest = torch.cat([past_BKE.transpose(0, 1), x_TBE[-taps:]])[-taps + 1 :] if taps > 1 else x_TBE[:0]
    return y_TBE, (newest * ~lost_KTB[: taps - 1, -1].flip(0).unsqueeze(-1)).transpose(0, 1)


def _one_step(x: Tensor, weight: Tensor, bias: Tensor, first: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    """The same for a single step, as a formula."""
    window_BKE = torch.cat([past * ~first[0][:, None, None], x.transpose(0, 1)], 1)
    return silu((window_BKE * weight.t()).sum(1) + bias).unsqueeze(0), window_BKE[:, 1:]


def _lost(first_TB: Tensor, taps: int) -> Tensor:
    """[K, T, B]: whether an episode began within a lag, so that the input that long ago belongs to another one."""
    lost = [torch.zeros_like(first_TB)]
    for lag in range(1, taps):
        reaches = torch.zeros_like(first_TB)
        reaches[lag - 1 :] = first_TB[: max(0, len(first_TB) - lag + 1)]
        lost.append(lost[-1] | reaches)
    return torch.stack(lost)


class _Convolution(torch.autograd.Function):
    """Products shifted by each lag, added up span by span; rows are steps of an environment, [T B, E]."""

    @staticmethod
    def forward(ctx: Kept, x: Tensor, past: Tensor, weight: Tensor, bias: Tensor, lost: Tensor) -> Tensor:
        """Outputs after SiLU; `lost` marks inputs of an earlier episode."""
        by_lag, batch = weight.flip(0), x.shape[1]
        inputs = torch.cat([past, x]).flatten(0, 1)
        keep = (~lost[1:]).to(x.dtype).flatten(1).unsqueeze(-1)
        y = torch.empty(inputs[len(past) * batch :].shape, dtype=x.dtype, device=x.device)
        share = torch.empty_like(y)
        for now, shifted in _spans(len(y), len(past), batch):
            total = torch.addcmul(bias, inputs[shifted[0]], by_lag[0])
            for lag in range(1, len(by_lag)):
                total.addcmul_(inputs[shifted[lag]] * keep[lag - 1, now], by_lag[lag])
            torch.mul(total, torch.sigmoid(total, out=share[now]), out=y[now])
        ctx.save_for_backward(inputs, by_lag, keep, share, y)
        return y.view(x.shape)

    @staticmethod
    def backward(ctx: Kept, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all inputs but `lost`."""
        inputs, by_lag, keep, share, y = ctx.saved_tensors
        steps, batch, width = grads[0].shape
        dy, past, one = grads[0].reshape(-1, width), len(by_lag) - 1, y.new_ones(())
        d_inputs = torch.empty_like(inputs)
        d_inputs[: past * batch] = 0.0
        d_weight = inputs.new_zeros(len(by_lag), min(steps, SPAN) * batch, width)
        d_bias = inputs.new_zeros(width)
        for now, shifted in _spans(len(dy), past, batch):
            products = d_weight[:, : now.stop - now.start]
            d_total = torch.lerp(y[now], one, share[now]).mul_(dy[now])  # silu' = sigmoid + silu (1 - sigmoid)
            d_bias += d_total.sum(0)
            torch.mul(d_total, by_lag[0], out=d_inputs[shifted[0]])  # nothing was added to these rows yet
            products[0].addcmul_(d_total, inputs[shifted[0]])
            for lag in range(1, len(by_lag)):
                slope = d_total * keep[lag - 1, now]
                d_inputs[shifted[lag]].addcmul_(slope, by_lag[lag])
                products[lag].addcmul_(slope, inputs[shifted[lag]])
        d_inputs = d_inputs.unflatten(0, (-1, batch))
        return d_inputs[past:], d_inputs[:past], d_weight.sum(1).flip(0), d_bias, None


def _spans(rows: int, past: int, batch: int) -> Iterator[tuple[slice, list[slice]]]:
    """Rows of outputs, and for each lag the rows of inputs that they see."""
    for begin in range(0, rows, SPAN * batch):
        end = min(rows, begin + SPAN * batch)
        yield slice(begin, end), [slice(begin + ago * batch, end + ago * batch) for ago in range(past, -1, -1)]
