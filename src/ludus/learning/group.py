"""Networks that one optimizer trains: their gradient norm, clipping and learning rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from ludus.learning.layout import Layout
from ludus.learning.optimizer import Optimizer, OptimizerConfig, Rates, traced_norm, traced_share
from ludus.math.losses import Scalar

Prefixes = Mapping[str, Sequence[str]]


class Group(NamedTuple):
    """Networks that one optimizer trains. Prefixes are those of parameter names inside their network."""

    networks: tuple[str, ...]
    optimizer: OptimizerConfig
    max_grad_norm: float | None = None
    """Largest norm of the group's gradient: a longer one is scaled down to it. None: gradients are not clipped."""
    parts: Prefixes = MappingProxyType({})
    """Name -> prefixes of parameters whose gradient norm is a metric of its own; together they cover the group."""
    rates: Prefixes = MappingProxyType({})
    """Keyword of `step` -> prefixes of the parameters whose learning rate it gives."""

    def order(self, model: nn.Module) -> list[str]:
        """Names of the group's parameters, those of each part side by side."""
        names = [name for network in self.networks for name, _ in model.named_parameters() if inside(name, network)]
        return [n for prefixes in self.parts.values() for n in names if begins(n, prefixes)] if self.parts else names


class FlatNetworks(Protocol):
    """Networks whose parameters and gradients are views of two flat tensors."""

    model: nn.ModuleDict
    layout: Layout
    theta: Tensor
    grad: Tensor


class TrainedGroup:
    """A group at work: its stretch of the flat weights and gradients, and its optimizer."""

    def __init__(self, label: str, group: Group, names: Sequence[str], flat: FlatNetworks) -> None:
        self.max_grad_norm, self.where = group.max_grad_norm, flat.layout.span(names)
        self.theta, self.grad = flat.theta[self.where], flat.grad[self.where]
        self.optimizer = Optimizer(group.optimizer, self.theta)
        self.inputs: list[nn.Parameter] | None = [p for name, p in flat.model.named_parameters() if name in names]
        """Parameters that get the gradient of the group's losses; None where there are no others."""

        def stretch(prefixes: Sequence[str]) -> slice:
            where = flat.layout.span([name for name in names if begins(name, prefixes)])
            return slice(where.start - self.where.start, where.stop - self.where.start) if where.stop else where

        self._rates = {name: stretch(prefixes) for name, prefixes in group.rates.items()}
        parts = {name: stretch(prefixes) for name, prefixes in group.parts.items()}
        self._parts = {name: where for name, where in parts.items() if where.stop}
        self._part_grads = [self.grad[where] for where in self._parts.values()]
        self.norm_names = [f"opt/grads/norm/{name}" for name in (label, *self._parts)]

    def step(self, lr: Scalar, own: Mapping[str, Scalar | None]) -> list[Tensor]:
        """Clip the gradient and take an optimizer step; returns vectors with the gradient norms of `norm_names`."""
        if self._part_grads:
            norms = torch.stack([grad.norm() for grad in self._part_grads])
            total = norms.norm() if len(norms) > 1 else norms[0]
            found = [total.unsqueeze(0), norms]
        else:
            total = self.grad.norm()
            found = [total.unsqueeze(0)]
        if self.max_grad_norm is not None:
            self.grad.mul_((self.max_grad_norm / (total + 1e-6)).clamp(max=1.0))
        self.optimizer.step(self.grad, self._spread(lr, own) or lr)
        return found

    def pure_step(
        self,
        theta: Tensor,
        moments: Sequence[Tensor],
        corrections: Sequence[Tensor],
        grad: Tensor,
        lr: Scalar,
        own: Mapping[str, Scalar | None],
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """The same step as a function of tensors, for compiled updates: (weights, moments, gradient norms)."""
        norms = [traced_norm(grad[where]) for where in self._parts.values()]
        total = torch.stack(norms).norm() if norms else traced_norm(grad)
        if self.max_grad_norm is not None:
            grad = grad * traced_share(self.max_grad_norm, total)
        spread = [torch.as_tensor(rate).expand(where.stop - where.start) for where, rate in self._spread(lr, own)]
        theta, state = self.optimizer.pure(theta, moments, grad, torch.cat(spread) if spread else lr, corrections)
        return theta, state, torch.stack([total, *norms])

    def _spread(self, lr: Scalar, own: Mapping[str, Scalar | None]) -> Rates:
        """Learning rates along the group's flat tensor; empty where one rate is for all."""
        given = [(self._rates[name], rate) for name, rate in own.items() if rate is not None]
        rates: Rates = []
        done = 0
        for where, rate in sorted(given, key=lambda item: item[0].start):
            rates += [(slice(done, where.start), lr), (where, rate)]
            done = where.stop
        rates.append((slice(done, len(self.theta)), lr))
        return [(where, rate) for where, rate in rates if where.start < where.stop] if given else []


def inside(name: str, network: str) -> bool:
    """Whether a parameter belongs to a network."""
    return name.startswith(f"{network}.")


def begins(name: str, prefixes: Sequence[str]) -> bool:
    """Whether the name of a parameter inside its network begins with one of the prefixes."""
    return name.partition(".")[2].startswith(tuple(prefixes))
