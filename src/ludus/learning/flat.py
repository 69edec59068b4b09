"""The parameters of a model as one flat tensor, and their gradients as another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn


class FlatParameters:
    """Moves the parameters of a model and their gradients into two flat tensors; the model keeps views of them.

    Clipping, Adam and polyak averaging are then a handful of kernels, however many layers there are. The parameters lie
    in the order of `prefixes`: first all whose names begin with the first one, and so on.
    """

    def __init__(self, model: nn.Module, prefixes: Sequence[str]) -> None:
        self.named = dict(model.named_parameters())
        self.names = [name for prefix in prefixes for name in self.named if name.startswith(prefix)]
        assert sorted(self.names) == sorted(self.named), "each parameter must be in exactly one group and part"
        self.sizes = [self.named[name].numel() for name in self.names]
        self.starts = [0, *accumulate(self.sizes)]
        self.theta = torch.cat([self.named[name].detach().reshape(-1) for name in self.names])
        self.grad = torch.zeros_like(self.theta)
        values, slopes = self.unflatten(self.theta), self.unflatten(self.grad)
        for name, parameter in self.named.items():
            parameter.data, parameter.grad = values[name], slopes[name]

    def span(self, prefixes: Sequence[str]) -> slice:
        """Where the parameters with these prefixes lie, which must be neighbours."""
        inside = [i for i, name in enumerate(self.names) if name.startswith(tuple(prefixes))]
        if not inside:
            return slice(0, 0)
        assert inside[-1] - inside[0] + 1 == len(inside), f"not neighbours in the flat tensor: {prefixes}"
        return slice(self.starts[inside[0]], self.starts[inside[-1] + 1])

    def unflatten(self, flat: Tensor, where: slice | None = None) -> dict[str, Tensor]:
        """Named views of a flat tensor like `theta`, or of one like its stretch `where`."""
        inside = [i for i, at in enumerate(self.starts[:-1]) if where is None or where.start <= at < where.stop]
        names, pieces = [self.names[i] for i in inside], flat.split([self.sizes[i] for i in inside])
        return {name: piece.view_as(self.named[name]) for name, piece in zip(names, pieces, strict=True)}
