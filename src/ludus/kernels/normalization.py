"""Root-mean-square norm and SiLU gate with hand-written derivatives: on the CPU torch takes more passes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import silu

from ludus.kernels import Kept, plain
from ludus.types import Array

EPS = 1e-5


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (Zhang & Sennrich 2019)."""
    return x * inverse_rms(x) * weight if plain() else _RMSNorm.apply(x, weight)


def rms_norm_numpy(x: Array, weight: Array) -> Array:
    """`rms_norm` without a derivative."""
    return x * (weight / np.sqrt((x * x).mean(-1, keepdims=True) + EPS))


def standardized_numpy(x: Array) -> Array:
    """A layer norm over the last dimension, without weights and derivative; averages are products, which are faster."""
    width = x.shape[-1]
    centred = x - (x @ np.full(width, 1.0 / width, x.dtype))[..., None]
    centred /= np.sqrt(np.einsum("...h,...h->...", centred, centred) / width + EPS)[..., None]
    return centred


def silu_numpy(x: Array) -> Array:
    """x sigmoid(x)."""
    return x * (0.5 * np.tanh(0.5 * x) + 0.5)


def gated(x: Tensor, gate: Tensor) -> Tensor:
    """x silu(gate)."""
    return x * silu(gate) if plain() else _Gated.apply(x, gate)


def inverse_rms(x: Tensor) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) over the last dimension, which is kept."""
    return (x.square().mean(-1, keepdim=True) + EPS).rsqrt() if plain() else _InverseRMS.apply(x)


def _inverse(x: Tensor) -> Tensor:
    return (torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_() / x.shape[-1] + EPS).rsqrt_()


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Kept, x: Tensor, weight: Tensor) -> Tensor:
        """x / rms(x) * weight."""
        inverse = _inverse(x)
        normed = x * inverse
        ctx.save_for_backward(normed, inverse, weight)
        return normed * weight

    @staticmethod
    def backward(ctx: Kept, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of x and the weight."""
        normed, inverse, weight = ctx.saved_tensors
        product = grads[0] * normed
        d_weight = product.flatten(0, -2).sum(0)
        share = (product @ weight / -normed.shape[-1]).unsqueeze(-1)
        return torch.mul(grads[0], weight).addcmul_(normed, share).mul_(inverse), d_weight


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Kept, x: Tensor, gate: Tensor) -> Tensor:
        """x silu(gate)."""
        share = torch.sigmoid(gate)
        silu = gate * share
        ctx.save_for_backward(x, share, silu)
        return x * silu

    @staticmethod
    def backward(ctx: Kept, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of x and the gate."""
        x, share, silu = ctx.saved_tensors
        slope = torch.lerp(silu, silu.new_ones(()), share)  # sigmoid + silu (1 - sigmoid): no exponential again
        return grads[0] * silu, slope.mul_(grads[0]).mul_(x)


class _InverseRMS(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Kept, x: Tensor) -> Tensor:
        """1 / rms(x)."""
        inverse = _inverse(x)
        ctx.save_for_backward(x, inverse)
        return inverse

    @staticmethod
    def backward(ctx: Kept, *grads: Tensor) -> Tensor:
        """The gradient of x."""
        x, inverse = ctx.saved_tensors
        return x * (grads[0] * inverse**3 / -x.shape[-1])
