"""Where parameters lie in flat tensors.

All parameters of a learner are views into one flat tensor, and their gradients into another: clipping, Adam and polyak
averaging are then a handful of kernels, however many layers there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn


class Layout:
    """The order of the parameters in a flat tensor; it begins with the parameter named first."""

    def __init__(self, parameters: Mapping[str, Tensor], order: Sequence[str]) -> None:
        assert sorted(order) == sorted(parameters), "each parameter must be in exactly one group"
        self.names = list(order)
        self.shapes = [parameters[name].shape for name in order]
        self.sizes = [parameters[name].numel() for name in order]
        self.starts = [0, *accumulate(self.sizes)]

    def span(self, names: Collection[str]) -> slice:
        """Where these parameters lie, which must be neighbours."""
        inside = [i for i, name in enumerate(self.names) if name in names]
        if not inside:
            return slice(0, 0)
        first, last = inside[0], inside[-1]
        assert last - first + 1 == len(inside), f"parameters are not neighbours in the flat tensor: {sorted(names)}"
        return slice(self.starts[first], self.starts[last + 1])

    def unflatten(self, flat: Tensor, where: slice | None = None) -> dict[str, Tensor]:
        """Named views of a flat tensor, or of the stretch `where` of one."""
        where = where or slice(0, self.starts[-1])
        inside = [i for i, start in enumerate(self.starts[:-1]) if where.start <= start < where.stop]
        pieces = flat.split([self.sizes[i] for i in inside])
        return {self.names[i]: piece.view(self.shapes[i]) for i, piece in zip(inside, pieces, strict=True)}


def flatten(model: nn.Module, layout: Layout) -> tuple[Tensor, Tensor]:
    """Moves parameters and their gradients into two flat tensors; the module keeps views of them."""
    named = dict(model.named_parameters())
    theta = torch.cat([named[name].detach().reshape(-1) for name in layout.names])
    grad = torch.zeros_like(theta)
    values, slopes = layout.unflatten(theta), layout.unflatten(grad)
    for name, parameter in named.items():
        parameter.data = values[name]
        parameter.grad = slopes[name]
    return theta, grad
