"""Networks that one optimizer trains: their gradient norm, clipping and learning rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ludus.learning.flat import FlatParameters
from ludus.learning.optimizer import Optimizer, OptimizerConfig, Rates, traced_norm, traced_share
from ludus.math.losses import Scalar

Prefixes = Mapping[str, Sequence[str]]


class Group(NamedTuple):
    """Networks that one optimizer trains. Prefixes are those of parameter names inside their network."""

    networks: tuple[str, ...]
    optimizer: OptimizerConfig
    max_grad_norm: float | None = None
    """Largest norm of the group's gradient: a longer one is scaled down to it. None: gradients are not clipped."""
    parts: Prefixes = MappingProxyType({"": ("",)})
    """Name -> prefixes of parameters whose gradient norm is a metric of its own; together they cover the group."""
    rates: Prefixes = MappingProxyType({})
    """Keyword of `step` -> prefixes of the parameters whose learning rate it gives."""

    def full(self, prefixes: Sequence[str]) -> list[str]:
        """Prefixes of full names."""
        return [f"{network}.{prefix}" for network in self.networks for prefix in prefixes]


class TrainedGroup:
    """A group at work: its stretch of the flat weights and gradients, and its optimizer."""

    def __init__(self, label: str, group: Group, flat: FlatParameters) -> None:
        self.max_grad_norm, self.where = group.max_grad_norm, flat.span(group.full([""]))
        self.theta, self.grad = flat.theta[self.where], flat.grad[self.where]
        self.optimizer = Optimizer(group.optimizer, self.theta)
        names = flat.unflatten(self.theta, self.where)
        self.inputs: list[nn.Parameter] | None = [flat.named[name] for name in names]
        """Parameters that get the gradient of the group's losses; None where there are no others."""
        self._rates = {name: self.inside(flat.span(group.full(prefixes))) for name, prefixes in group.rates.items()}
        spans = {name: flat.span(group.full(prefixes)) for name, prefixes in group.parts.items() if name}
        self._parts = {name: self.inside(span) for name, span in spans.items() if span.stop}
        self._part_grads = [self.grad[where] for where in self._parts.values()]
        self.norm_names = [f"opt/grads/norm/{name}" for name in (label, *self._parts)]

    def inside(self, span: slice) -> slice:
        """A stretch of the learner's flat tensor, seen from the group's own."""
        return slice(span.start - self.where.start, span.stop - self.where.start) if span.stop else span

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
        before: tuple[Tensor, Sequence[Tensor], Sequence[Tensor]],
        grad: Tensor,
        lr: Scalar,
        own: Mapping[str, Scalar | None],
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """The same as a function of (weights, moments, corrections): (weights, moments, gradient norms)."""
        norms = [traced_norm(grad[where]) for where in self._parts.values()]
        total = torch.stack(norms).norm() if norms else traced_norm(grad)
        if self.max_grad_norm is not None:
            grad = grad * traced_share(self.max_grad_norm, total)
        spread = [torch.as_tensor(rate).expand(where.stop - where.start) for where, rate in self._spread(lr, own)]
        theta, moments, corrections = before
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
