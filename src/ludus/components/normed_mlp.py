"""Layers of TD-MPC: one network, or an ensemble of equal ones as one batched product.

Shapes: M members, N rows, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, layer_norm

from ludus.components.layers import Activation
from ludus.kernels.mish import mish
from ludus.math.latents import simplicial, uniform

Kind = Literal["mish", "elu", "normed_tanh", "simplex", "linear"]
"""What follows the product: `mish`, `normed_tanh` and `simplex` are normalised first (layer normalisation)."""
PLAIN: dict[str, Activation] = {"elu": elu, "linear": lambda x: x}
NORMED: dict[str, Activation] = {"mish": mish, "normed_tanh": torch.tanh}


class NormedLinear(nn.Module):
    """Linear, then by its kind layer normalisation and an activation; `members` of them at once, or 0 for one alone."""

    def __init__(self, inputs: int, outputs: int, kind: Kind, members: int = 0, group: int = 8) -> None:
        super().__init__()
        width = (members, 1, outputs) if members else (outputs,)
        shape = (members, inputs, outputs) if members else (outputs, inputs)
        self.weight, self.bias = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.zeros(width))
        self.normed = kind not in PLAIN
        if self.normed:
            self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        known = {**PLAIN, **NORMED, "simplex": lambda x: simplicial(x, group)}
        self.activation, self.outputs, self.members = known[kind], (outputs,), members

    def extra_repr(self) -> str:
        """Its sizes, for those who print a network."""
        return ", ".join(str(size) for size in self.weight.shape)

    def forward(self, x: Tensor, pick: Tensor | None = None, dropped: Tensor | None = None) -> Tensor:
        """[..., O] of [..., I], or of an ensemble [M, N, O] of [M, N, I]; `pick` [2] are the members that are asked.

        `dropped` [M, N, O] multiplies the product.
        """
        weight, bias = (p if pick is None else p[pick] for p in (self.weight, self.bias))
        x = torch.baddbmm(bias, x, weight) if self.members else nn.functional.linear(x, weight, bias)
        if dropped is not None:
            x = x * dropped
        if self.normed and self.members:
            gain, shift = (p if pick is None else p[pick] for p in (self.gain, self.shift))
            x = torch.addcmul(shift, layer_norm(x, self.outputs), gain)
        elif self.normed:
            x = layer_norm(x, self.outputs, self.gain, self.shift)
        return self.activation(x)


def begin(layers: Sequence[Any], hidden: Sequence[Kind], *, zero: bool) -> None:
    """First weights: small truncated normal ones, or orthogonal ones beside ELU (TD-MPC); the last may be zero."""
    for layer in layers:
        if "elu" not in hidden:
            nn.init.trunc_normal_(layer.weight, std=0.02)
        else:
            for member in layer.weight if layer.members else [layer.weight]:
                nn.init.orthogonal_(member)
    if zero:
        nn.init.zeros_(layers[-1].weight)


class NormedMLP(nn.Module):
    """[..., O] of [..., I]."""

    def __init__(
        self,
        inputs: int,
        units: int,
        hidden: Sequence[Kind],
        outputs: int,
        last: Kind,
        group: int = 8,
        *,
        zero: bool = False,
    ) -> None:
        super().__init__()
        widths = [inputs, *[units] * len(hidden), outputs]
        kinds: list[Kind] = [*hidden, last]
        self.layers = nn.Sequential(
            *(NormedLinear(widths[i], widths[i + 1], kind, group=group) for i, kind in enumerate(kinds))
        )
        begin(list(self.layers), hidden, zero=zero)

    def forward(self, x: Tensor) -> Tensor:
        """Through all layers."""
        return self.layers(x)


class EnsembleMLP(nn.Module):
    """[M, ..., O] of [..., I]: what each member says of the same inputs; zero at first."""

    def __init__(self, members: int, inputs: int, units: int, hidden: Sequence[Kind], outputs: int) -> None:
        super().__init__()
        widths = [inputs, *[units] * len(hidden), outputs]
        kinds: list[Kind] = [*hidden, "linear"]
        self.members, self.units = members, units
        self.layers = nn.ModuleList(
            NormedLinear(widths[i], widths[i + 1], kind, members) for i, kind in enumerate(kinds)
        )
        begin(list(self.layers), hidden, zero=True)

    def forward(self, x: Tensor, pick: Tensor | None = None, dropped: Tensor | None = None) -> Tensor:
        """Of all members, or of those that `pick` names; `dropped` [M, N, units] belongs to the first layer."""
        y = x.reshape(-1, x.shape[-1]).expand(self.members if pick is None else len(pick), -1, -1)
        for i, layer in enumerate(self.layers):
            y = layer(y, pick, dropped if i == 0 else None)
        return y.unflatten(1, x.shape[:-1])

    def dropout(self, noise: Tensor, rate: float, rows: int) -> Tensor:
        """Factors [M, N, units]: 0 with probability `rate`, else 1 / (1 - rate), from noise [M, N + units].

        A sum of two uniform numbers modulo 1 is uniform, and any two of these sums are independent: a number for each
        row and one for each unit are enough.
        """
        row, unit = uniform(noise).split([rows, self.units], -1)
        kept = (row.unsqueeze(-1) + unit.unsqueeze(-2)).frac() >= rate
        return kept.to(noise.dtype) * (1 / (1 - rate))
