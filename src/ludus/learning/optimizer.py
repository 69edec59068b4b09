"""The optimizer step of a group of networks: clip its gradient, then Adam, AdamW, LaProp or SGD on one flat tensor.

Reading order: TrainedGroup.step -> Optimizer.step. The optimizers are written out instead of
taken from torch.optim: importing that pulls in the compiler (over a second of start-up), and one fused kernel on one
tensor is all a small network needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from ludus.config.optimizer import OptimizerConfig as OptimizerConfig
from ludus.learning.adaptive_clipping import clip_adaptively
from ludus.learning.descent import laprop, sgd
from ludus.math.policy_gradient import Scalar

if TYPE_CHECKING:
    from ludus.learning.flat import FlatParameters
    from ludus.learning.learner import Group

Rates = list[tuple[slice, Scalar]]
"""Stretches that cover a flat tensor, each with its learning rate."""


class TrainedGroup:
    """A group at work: its stretch of the flat weights and gradients, and its optimizer."""

    def __init__(self, label: str, group: Group, flat: FlatParameters, *, alone: bool) -> None:
        self.networks, self.max_grad_norm = group.networks, group.max_grad_norm
        self.where = flat.span(group.full([""]))
        self.theta, self.grad = flat.theta[self.where], flat.grad[self.where]
        self.optimizer = Optimizer(group.optimizer, self.theta)
        views = flat.unflatten(self.theta, self.where)
        self.sizes = [view.numel() for view in views.values()]
        self._pairs = self.grad.split(self.sizes), self.theta.split(self.sizes)
        self._parameters = [flat.named[name] for name in views]
        self.inputs: list[nn.Parameter] | None = None if alone else self._parameters
        """Parameters that get the gradient of the group's losses; None (less work) where there are no others."""
        self._rates = {name: self.inside(flat.span(group.full(prefixes))) for name, prefixes in group.rates.items()}
        spans = {name: flat.span(group.full(prefixes)) for name, prefixes in group.parts.items() if name}
        self.parts = {name: self.inside(span) for name, span in spans.items() if span.stop}
        self._part_grads = [self.grad[where] for where in self.parts.values()]
        self.norm_names = [f"opt/grads/norm/{name}" for name in ("all" if alone else label, *self.parts)]

    def inside(self, span: slice) -> slice:
        """A stretch of the learner's flat tensor, seen from the group's own."""
        return slice(span.start - self.where.start, span.stop - self.where.start) if span.stop else span

    def step(self, lr: Scalar, own: Mapping[str, Scalar | None]) -> Tensor:
        """Clip the gradient and take an optimizer step; returns the gradient norms of `norm_names`."""
        norms = [grad.norm() for grad in self._part_grads] or [self.grad.norm()]
        total = torch.stack(norms).norm() if len(norms) > 1 else norms[0]
        if self.max_grad_norm is not None:
            self.grad.mul_((self.max_grad_norm / (total + 1e-6)).clamp(max=1.0))
        if self.optimizer.cfg.agc is not None:
            clip_adaptively(*self._pairs, self.optimizer.cfg.agc)
        self.optimizer.step(self.grad, self.spread(lr, own) or lr)
        increment_version(self._parameters)  # views made by `.data`: autograd would not see that a loss is stale
        return torch.stack([total, *norms] if self.parts else norms)

    def spread(self, lr: Scalar, own: Mapping[str, Scalar | None]) -> Rates:
        """Learning rates along the group's flat tensor; empty where one rate is for all."""
        given = [(self._rates[name], rate) for name, rate in own.items() if rate is not None]
        rates: Rates = []
        done = 0
        for where, rate in sorted(given, key=lambda item: item[0].start):
            rates += [(slice(done, where.start), lr), (where, rate)]
            done = where.stop
        rates.append((slice(done, len(self.theta)), lr))
        return [(where, rate) for where, rate in rates if where.start < where.stop] if given else []


class Optimizer:
    """One optimizer over one flat tensor, in place."""

    def __init__(self, cfg: OptimizerConfig, theta: Tensor) -> None:
        self.cfg, self.theta = cfg, theta
        self.count = 0
        moments = 1 if cfg.type == "sgd" else 2
        self.tensors = [torch.zeros_like(theta) for _ in range(moments)]
        self._count_tensor = torch.zeros((), dtype=torch.float32, device=theta.device)
        self._adam: Any = {"beta1": cfg.betas[0], "beta2": cfg.betas[1], "weight_decay": cfg.weight_decay}
        self._adam |= {"eps": cfg.eps, "amsgrad": False, "maximize": False}

    @torch.no_grad()
    def step(self, grad: Tensor, lr: Scalar | Rates) -> None:
        """One step along `grad`, in place."""
        self.count += 1
        self._count_tensor.fill_(self.count)
        if not isinstance(lr, list):
            self._follow(self.theta, grad, self.tensors, lr)
            return
        for where, rate in lr:
            self._follow(self.theta[where], grad[where], [tensor[where] for tensor in self.tensors], rate)

    def _follow(self, theta: Tensor, grad: Tensor, moments: Sequence[Tensor], lr: Scalar) -> None:
        cfg = self.cfg
        if cfg.type == "sgd":
            sgd(cfg, theta, grad, lr, *moments)
        elif cfg.type == "laprop":
            laprop(cfg, theta, grad, lr, self.count, *moments)
        else:
            fused = torch._fused_adamw_ if cfg.type == "adamw" else torch._fused_adam_  # what torch.optim calls
            first, second = moments
            fused([theta], [grad], [first], [second], [], [self._count_tensor], lr=lr, **self._adam)

    def state_dict(self) -> dict[str, Any]:
        """Moments and the number of steps."""
        return {"count": self.count, "moments": {str(i): tensor for i, tensor in enumerate(self.tensors)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copies the moments in place."""
        self.count = int(state["count"])
        for i, tensor in enumerate(self.tensors):
            tensor.copy_(torch.as_tensor(state["moments"][str(i)]))
