"""The U-Net in numpy, without gradients: for a few samples the calls of torch take longer than the arithmetic.

Convolutions are products of windows, [B, T, C] -> [B T, K C] x [K C, C']; a transposed one has two rows for each step.

Shapes: B samples, T steps, C channels, K steps that a convolution sees, F scales and shifts of all blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ludus.types import Array

if TYPE_CHECKING:
    from ludus.networks.denoisers.unet import Block, UNet, UNetLevel, UNetResidual

Layer = Callable[[Array], Array]


class NumpyUNet:
    """Copies of the weights of a U-Net, and its forward pass."""

    def __init__(self, net: UNet) -> None:
        self.down, self.up = [level(part) for part in net.down], [level(part) for part in net.up]
        self.middle = level(net.middle)
        self.shorter, self.longer = (
            [convolution(part) for part in net.shorter],
            [transposed(part) for part in net.longer],
        )
        self.last, self.out = block(net.last), convolution(net.out)
        self.ends = np.cumsum(net.film_sizes)[:-1]

    @torch.no_grad()
    def __call__(self, x_BTA: Tensor, time: Tensor, seen: Tensor) -> Tensor:
        """`UNet.forward`."""
        films = iter(np.split((time + seen).numpy()[:, None], self.ends, -1))
        x, beside = np.ascontiguousarray(x_BTA.numpy()), []
        with np.errstate(over="ignore"):
            for i, part in enumerate(self.down):
                x = part(x, films)
                beside.append(x)
                x = self.shorter[i](x) if i < len(self.shorter) else x
            x = self.middle(x, films)
            for part, longer in zip(self.up, self.longer, strict=True):
                x = longer(part(np.concatenate([x, beside.pop()], -1), films))
            return torch.from_numpy(self.out(self.last(x)))


def level(part: UNetLevel) -> Callable[[Array, Iterator[Array]], Array]:
    """Residual blocks, each with its scale and shift."""
    blocks = [residual(one) for one in part.blocks]

    def run(x: Array, films: Iterator[Array]) -> Array:
        for one in blocks:
            x = one(x, next(films))
        return x

    return run


def residual(part: UNetResidual) -> Callable[[Array, Array], Array]:
    """x + two blocks, scaled and shifted between them."""
    first, second = block(part.first), block(part.second)
    across = convolution(part.across) if isinstance(part.across, nn.Conv1d) else None

    def run(x: Array, film: Array) -> Array:
        width = film.shape[-1] // 2
        inner = first(x)
        inner *= film[..., :width]
        inner += film[..., width:]
        found = second(inner)
        found += x if across is None else across(x)
        return found

    return run


def block(part: Block) -> Layer:
    """Convolution, group norm, Mish."""
    apply, norm = convolution(part.convolution), part.norm
    scale, shift, width = array(norm.weight), array(norm.bias), norm.num_channels // norm.num_groups
    same = np.arange(norm.num_channels) // width
    average = (same[:, None] == same).astype(np.float32) / np.float32(width)

    def run(x: Array) -> Array:
        y = apply(x)
        steps = np.float32(y.shape[1])
        y -= (np.add.reduce(y, 1, keepdims=True) @ average) / steps
        variance = (np.add.reduce(y * y, 1, keepdims=True) @ average) / steps
        variance += np.float32(norm.eps)
        y *= scale / np.sqrt(variance)
        y += shift
        below = np.exp(y)
        below += 1
        below *= below
        below += 1
        np.divide(y, below, out=below)  # y - 2 y / ((1 + e^y)^2 + 1)
        below *= -2
        below += y
        return below

    return run


def convolution(layer: nn.Conv1d) -> Layer:
    """A convolution of odd width."""
    weight, (stride,) = array(layer.weight), layer.stride
    return product(weight.transpose(2, 1, 0), array(layer.bias), stride)


def transposed(layer: nn.ConvTranspose1d) -> Layer:
    """The inverse of a halving: of each step two, which see it and one neighbour each."""
    weight, bias = array(layer.weight), array(layer.bias)
    none = np.zeros_like(weight[..., 0])
    even, odd = [[weight[..., i] if i is not None else none for i in taps] for taps in ((3, 1, None), (None, 2, 0))]
    apply = product(np.concatenate([np.stack(even), np.stack(odd)], -1), np.concatenate([bias, bias]), 1)

    def run(x: Array) -> Array:
        batch, length, _ = x.shape
        return apply(x).reshape(batch, 2 * length, -1)

    return run


def product(weight_KCO: Array, bias: Array, stride: int) -> Layer:
    """Windows of K steps around every `stride`-th step, times the weights."""
    taps, inside, outside = weight_KCO.shape
    weight = np.ascontiguousarray(weight_KCO.reshape(-1, outside))
    half = taps // 2

    def run(x: Array) -> Array:
        batch, length, _ = x.shape
        if half:
            padded = np.zeros((batch, length + 2 * half, inside), np.float32)
            padded[:, half:-half] = x
            whole, row, item = padded.strides
            shape, strides = (batch, length // stride, taps * inside), (whole, stride * row, item)
            x = np.ndarray(shape, np.float32, padded, strides=strides)
        out = x.reshape(-1, taps * inside) @ weight
        out += bias
        return out.reshape(batch, -1, outside)

    return run


def array(tensor: Any) -> Array:
    """A copy of a parameter."""
    return tensor.detach().numpy().copy()
